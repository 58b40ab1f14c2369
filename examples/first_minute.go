// The first minute with go-redis: go get github.com/redis/go-redis/v9
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})

	// Returns when it is on disk.
	if err := client.Set(ctx, "name", "Ada", time.Hour).Err(); err != nil {
		panic(err)
	}
	fmt.Println(client.Get(ctx, "name").Val(), client.Incr(ctx, "visits").Val())

	// All or nothing, after a crash as well.
	var from, to *redis.IntCmd
	if _, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		from, to = pipe.DecrBy(ctx, "account:1", 10), pipe.IncrBy(ctx, "account:2", 10)
		return nil
	}); err != nil {
		panic(err)
	}
	fmt.Println("transfer:", from.Val(), to.Val())
}
