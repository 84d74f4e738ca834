#!/usr/bin/python3
# Copyright (c) 2026, zklock contributors
"""Threads that lock and unlock with kazoo, all on one ZooKeeper session.

The form of requests and paths, and the clock, are those of load.h.  Times are in microseconds.

    connect     hosts, timeout (ms)
    run         sessions, path, think, begin, from, end: each of so many threads acquires,
                thinks, releases, again and again.  Result: how long each acquisition took
"""

import itertools
import logging
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient

client = None
used = itertools.count(1)


def now():
    return time.monotonic_ns() // 1000


def sleep_until(moment):
    left = moment - now()
    if left > 0:
        time.sleep(left / 1e6)


def connect(hosts, timeout):
    global client
    client = KazooClient(hosts=hosts, timeout=int(timeout) / 1000)
    client.start()
    return "1"


def expanded(path):
    return path.replace("%n", f"{os.getpid()}-{next(used)}").replace("%r", str(random.randint(1, 10000)))


def lock_and_unlock(path, think, begin, start, end):
    durations = []
    others = 0
    lock = None
    sleep_until(begin)
    while True:
        before = now()
        if before >= end:
            return durations, others
        if lock is None or "%" in path:
            lock = client.Lock(expanded(path))
        lock.acquire()
        acquired = now()
        if start <= acquired <= end:
            durations.append(acquired - before)
        else:
            others += 1
        if think > 0:
            sleep_until(min(acquired + think, end))
        lock.release()


def run(sessions, path, think, begin, end, **rest):
    start = rest["from"]
    paths = [path.replace("%d", str(i + 1)) for i in range(int(sessions))]
    with ThreadPoolExecutor(len(paths)) as pool:
        threads = [pool.submit(lock_and_unlock, path, int(think), int(begin), int(start), int(end)) for path in paths]
    durations = [duration for thread in threads for duration in thread.result()[0]]
    others = sum(thread.result()[1] for thread in threads)
    return '{"durations":"%s","others":%d}' % (" ".join(map(str, durations)), others)


def main():
    logging.basicConfig(level=logging.WARNING)
    commands = {"connect": connect, "run": run}
    for line in sys.stdin:
        number, command, *words = line.rstrip("\n").split("\t")
        result = commands[command](**dict(word.split("=", 1) for word in words))
        print('{"id":%s,"ok":true,"result":%s}' % (number, result), flush=True)
    if client:
        client.stop()


main()
