// Command river runs no-op jobs of River on PostgreSQL, for internal/bench to
// compare with. It is a module of its own, so that nobody who uses pi-worker
// inherits the drivers. Its arguments are the database's URL and the number of
// jobs; it prints how many of them were worked per second.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	if err := run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// noOp is a job without work.
type noOp struct{}

// Kind implements river.JobArgs.
func (noOp) Kind() string { return "no_op" }

type worker struct {
	river.WorkerDefaults[noOp]
	left atomic.Int64
	done chan struct{}
}

// Work implements river.Worker.
func (w *worker) Work(context.Context, *river.Job[noOp]) error {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: river URL JOBS")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, args[1])
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	w := &worker{done: make(chan struct{})}
	w.left.Store(int64(n))
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 200}},
		Workers: workers, FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = noOp{}
	}
	if _, err := client.InsertMany(ctx, jobs); err != nil {
		return err
	}
	begun := time.Now()
	if err := client.Start(ctx); err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Until the last one is committed as completed.
	if err := client.Stop(ctx); err != nil {
		return err
	}
	took := time.Since(begun)
	var left int
	err = pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d jobs are not completed", left)
	}
	fmt.Printf("%.0f\n", float64(n)/took.Seconds())
	return err
}
