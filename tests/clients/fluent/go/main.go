// Sends records by the forward protocol: see ../README.md.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/fluent/fluent-logger-golang/fluent"
)

func main() {
	if err := send(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send() error {
	endpoint := flag.String("endpoint", "", "host:port, or the path of a Unix socket")
	count := flag.Int("count", 0, "records")
	run := flag.String("run-id", "", "value of the field run")
	noAck := flag.Bool("no-ack", false, "ask for no acknowledgements")
	flag.Parse()
	config := fluent.Config{
		RequestAck:         !*noAck,
		SubSecondPrecision: true,
		ReadTimeout:        20 * time.Second,
		RetryWait:          100,
		MaxRetryWait:       1000,
	}
	if host, port, err := net.SplitHostPort(*endpoint); err == nil {
		config.FluentHost = host
		if config.FluentPort, err = strconv.Atoi(port); err != nil {
			return err
		}
	} else {
		config.FluentNetwork, config.FluentSocketPath = "unix", *endpoint
	}
	logger, err := fluent.New(config)
	if err != nil {
		return err
	}
	for i := 0; i < *count; i++ {
		record := map[string]any{
			"message": fmt.Sprintf("log-%d", i),
			"run":     *run,
			"seq":     i,
			"nested":  map[string]any{"half": float64(i) + 0.5},
		}
		if err := logger.PostWithTime("sluice.test", time.Unix(int64(1700000000+i), 5), record); err != nil {
			return err
		}
	}
	if err := logger.Close(); err != nil {
		return err
	}
	fmt.Printf("sent %d\n", *count)
	return nil
}
