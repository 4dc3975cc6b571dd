// Go's net/http with its defaults: with a length, chunked, and waiting for 100 Continue.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	bodies := []io.Reader{
		strings.NewReader(os.Args[3]),
		io.MultiReader(strings.NewReader(os.Args[3])), // of unknown length: chunked
		strings.NewReader(os.Args[3]),
	}
	for number, body := range bodies {
		request, err := http.NewRequest("POST", os.Args[1], body)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
		if number == 2 {
			request.Header.Set("Expect", "100-continue")
		}
		response, err := client.Do(request)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode)
	}
}
