// Java's own client with its defaults: over plain HTTP it offers h2c with each first request.
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

public class Publish {
  public static void main(String[] given) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    byte[] body = given[2].getBytes("UTF-8");
    BodyPublisher[] publishers = {
      BodyPublishers.ofByteArray(body),
      BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body)), // chunked
      BodyPublishers.ofByteArray(body),
    };
    for (BodyPublisher publisher : publishers) {
      HttpRequest request = HttpRequest.newBuilder(URI.create(given[0]))
          .header("Authorization", "Bearer " + given[1])
          .header("Content-Type", "application/json")
          .POST(publisher)
          .build();
      System.out.println(client.send(request, BodyHandlers.ofString()).statusCode());
    }
  }
}
