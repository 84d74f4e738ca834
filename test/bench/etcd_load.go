// Copyright (c) 2026, zklock contributors

// Goroutines that lock and unlock with concurrency.Mutex of etcd's Go client, all on one
// connection. Each has a lease of its own: mutexes of one lease do not exclude each other. And
// goroutines whose transactions such a lock guards, each on a database connection of its own.
//
// The form of requests and paths, and the clock, are those of load.h. Times are in microseconds.
//
//	connect     hosts, timeout (ms): all members; a follower among them is the server
//	run         sessions, path, think, begin, from, end: each of so many goroutines acquires,
//	            thinks, releases, again and again. Result: how long each acquisition took
//	run         ..., conninfo: each acquires, updates a row of the database, commits, releases.
//	            Result: how long all of that took, each time
package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/lib/pq"
	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

type arguments map[string]string

var (
	client   *clientv3.Client
	lifetime int // of a lease, seconds
	sessions []*concurrency.Session
	opened   = map[string][]*sql.Conn{} // of transactions, by conninfo
	used     int64
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (a arguments) number(key string) int64 {
	number, err := strconv.ParseInt(a[key], 10, 64)
	check(err)
	return number
}

func now() int64 {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return ts.Nano() / 1000
}

func min(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func sleepUntil(moment int64) {
	time.Sleep(time.Duration(moment-now()) * time.Microsecond)
}

func expand(path string, number int) string {
	if strings.Contains(path, "%n") {
		path = strings.ReplaceAll(path, "%n", fmt.Sprintf("%d-%d", os.Getpid(), atomic.AddInt64(&used, 1)))
	}
	path = strings.ReplaceAll(path, "%r", strconv.Itoa(rand.Intn(10000)+1))
	return strings.ReplaceAll(path, "%d", strconv.Itoa(number))
}

func dial(host string) *clientv3.Client {
	dialled, err := clientv3.New(clientv3.Config{
		Endpoints: []string{host}, DialTimeout: 30 * time.Second, DialOptions: []grpc.DialOption{grpc.WithBlock()}})
	check(err)
	return dialled
}

// A leader answers its own clients sooner than those of the others.
func connect(a arguments) string {
	hosts := strings.Split(a["hosts"], ",")
	for _, host := range hosts {
		client = dial(host)
		status, err := client.Status(context.Background(), host)
		check(err)
		if len(hosts) == 1 || status.Leader != 0 && status.Leader != status.Header.MemberId {
			break
		}
		client.Close()
	}
	lifetime = int(a.number("timeout") / 1000)
	return "1"
}

func database(conninfo string, number int) *sql.Conn {
	for len(opened[conninfo]) < number {
		pool, err := sql.Open("postgres", conninfo)
		check(err)
		connection, err := pool.Conn(context.Background())
		check(err)
		opened[conninfo] = append(opened[conninfo], connection)
	}
	return opened[conninfo][number-1]
}

func execute(connection *sql.Conn, statements string) {
	_, err := connection.ExecContext(context.Background(), statements)
	check(err)
}

// A transaction, in as many messages as by JDBC. What is guarded by one lock is one row.
func update(connection *sql.Conn, number int, a arguments) {
	row := 1
	if strings.Contains(a["path"], "%") {
		row = number
	}
	execute(connection, fmt.Sprintf("BEGIN; UPDATE guarded SET n = n + 1 WHERE id = %d", row))
	execute(connection, "COMMIT")
}

// Without a connection to a database, nothing but the lock is timed.
func lockAndUnlock(session *concurrency.Session, connection *sql.Conn, number int, a arguments, durations chan<- []int64) {
	background := context.Background()
	think, from, end := a.number("think"), a.number("from"), a.number("end")
	var counted []int64
	sleepUntil(a.number("begin"))
	for before := now(); before < end; before = now() {
		mutex := concurrency.NewMutex(session, expand(a["path"], number))
		check(mutex.Lock(background))
		if connection != nil {
			update(connection, number, a)
			check(mutex.Unlock(background))
		}
		acquired := now()
		if acquired >= from && acquired <= end {
			counted = append(counted, acquired-before)
		} else {
			counted = append(counted, -1)
		}
		if think > 0 {
			sleepUntil(min(acquired+think, end))
		}
		if connection == nil {
			check(mutex.Unlock(background))
		}
	}
	durations <- counted
}

func run(a arguments) string {
	count := int(a.number("sessions"))
	for len(sessions) < count {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(lifetime))
		check(err)
		sessions = append(sessions, session)
	}
	durations := make(chan []int64)
	for i := 0; i < count; i++ {
		var connection *sql.Conn
		if a["conninfo"] != "" {
			connection = database(a["conninfo"], i+1)
		}
		go lockAndUnlock(sessions[i], connection, i+1, a, durations)
	}
	var words []string
	others := 0
	for i := 0; i < count; i++ {
		for _, duration := range <-durations {
			if duration < 0 {
				others++
			} else {
				words = append(words, strconv.FormatInt(duration, 10))
			}
		}
	}
	return fmt.Sprintf(`{"durations":"%s","others":%d}`, strings.Join(words, " "), others)
}

func main() {
	commands := map[string]func(arguments) string{"connect": connect, "run": run}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Split(input.Text(), "\t")
		a := arguments{}
		for _, word := range words[2:] {
			pair := strings.SplitN(word, "=", 2)
			a[pair[0]] = pair[1]
		}
		fmt.Printf("{\"id\":%s,\"ok\":true,\"result\":%s}\n", words[0], commands[words[1]](a))
	}
}
