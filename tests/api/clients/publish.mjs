// Node's fetch, and its http module on one kept connection: chunked, then with a length.
import http from "node:http";

const [url, key, body] = process.argv.slice(2);
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
console.log((await fetch(url, { method: "POST", headers, body })).status);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
for (const length of [{}, { "content-length": Buffer.byteLength(body) }]) {
  const status = await new Promise((resolve, reject) => {
    const options = { method: "POST", agent, headers: { ...headers, ...length } };
    const request = http.request(url, options, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    });
    request.on("error", reject);
    request.write(body.slice(0, 3));
    setImmediate(() => request.end(body.slice(3)));
  });
  console.log(status);
}
agent.destroy();
