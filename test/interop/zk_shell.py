#!/usr/bin/python3
# Copyright (c) 2026, zklock contributors
"""ZooKeeper client that obeys lines: an administrator's tool and a foreign contender.

A request is one line on standard input, either JSON or words as a shell parts them:

    [7, "create", "/a/b", {"data": "x", "ephemeral": true}]
    create /a/b data=x ephemeral sequence makepath

The last element may be an object with options. The answer is one line of JSON:

    {"id": 7, "ok": true, "result": "/a/b"}
    {"id": 7, "ok": false, "error": "NoNodeError: /a"}

Requests of one session run in order; waiting for a lock does not hold up the others.
Ends at the end of the input. The commands are the methods of Shell below; test/perl/
Zklock/Shell.pm describes them.
"""

import inspect
import json
import logging
import os
import re
import shlex
import socket
import struct
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NoNodeError
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from kazoo.security import make_acl, make_digest_acl_credential

# On a busy machine all takes longer.
FACTOR = float(os.environ.get("ZKLOCK_TEST_FACTOR") or 1)

# Names that other clients' exclusive locks have; kazoo's own is always respected.
EXCLUSIVE_NAMES = ["lock-", "__WRIT__", "LOCK-EXCLUSIVE-", "x-[0-9a-f]+-"]
SHARED_NAMES = ["__READ__", "__rlock__", "LOCK-SHARED-"]

LOCKS = {"exclusive": Lock, "write": WriteLock, "shared": ReadLock}

FLAGS = {"ephemeral", "sequence", "makepath", "recursive", "missing_ok"}


def text(data):
    return data.decode("utf-8", "backslashreplace")


def stat_dict(stat):
    names = ("czxid", "mzxid", "pzxid", "ctime", "mtime", "version", "cversion",
             "aversion", "dataLength", "numChildren")
    result = {name: getattr(stat, name) for name in names}
    result["ephemeralOwner"] = hex(stat.ephemeralOwner)
    return result


def sequence_order(name):
    match = re.search(r"(\d{10})$", name)
    return (match is None, int(match.group(1)) if match else 0, name)


def parse_acl(entries):
    """[["world", "anyone", "r"], ["digest", "user:password", "cdrwa"]]"""
    acl = []
    for scheme, ident, letters in entries:
        rights = dict(read="r" in letters, write="w" in letters, create="c" in letters,
                      delete="d" in letters, admin="a" in letters)
        if scheme == "digest" and ident.count(":") == 1:
            ident = make_digest_acl_credential(*ident.split(":"))
        acl.append(make_acl(scheme, ident, **rights))
    return acl


def session_password(session_id):
    """What a ZooKeeper server hands out for this session: java.util.Random seeded with
    the id and a constant of its source, and no secret of this server. With it an
    administrator can end anybody's session."""
    seed = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    while len(password) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += ((seed >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def resume(server, session_id, request=b"", password=None, timeout=10000):
    """Resumes a session on a new connection, with a request right behind."""
    secret = bytes.fromhex(password) if password else session_password(session_id)
    greeting = struct.pack(">iqiqi16s?", 0, 0, timeout, session_id, len(secret), secret, False)
    packet = struct.pack(">i", len(greeting)) + greeting
    if request:
        packet += struct.pack(">i", len(request)) + request
    server.sendall(packet)
    answer = b""
    while len(answer) < 41:
        part = server.recv(41 - len(answer))
        if not part:
            break
        answer += part
    if len(answer) < 20 or struct.unpack(">q", answer[12:20])[0] != session_id:
        raise LookupError("there is no session %s" % hex(session_id))



class Shell:
    def __init__(self):
        self.clients = {}
        self.attached = []
        self.locks = {}
        self.candidates = {}
        self.output = threading.Lock()

    def client(self, name):
        if name not in self.clients:
            raise LookupError("client %s is not connected" % name)
        return self.clients[name]

    # ---- sessions

    def connect(self, hosts, client="main", timeout=10):
        if client in self.clients:
            self.close_connection(client)
        # By itself kazoo waits up to a minute between attempts, and its session ends meanwhile.
        zk = KazooClient(hosts=hosts, timeout=timeout, connection_retry={"max_tries": -1, "max_delay": 1})
        zk.start(timeout=30 * FACTOR)
        self.clients[client] = zk
        return hex(zk.client_id[0])

    def close_connection(self, client="main"):
        zk = self.clients.pop(client)
        zk.stop()
        zk.close()

    def reconnect(self, client="main"):
        """Same session, new connection: a server that was just starting when kazoo came
        may have left it without an answer, for which kazoo waits a session timeout."""
        zk = self.client(client)
        end = time.monotonic() + 30
        kick = 0
        while not zk.connected:
            now = time.monotonic()
            if now > end:
                raise TimeoutError("no connection to %s" % zk.hosts)
            if now > kick:
                kick = now + 1
                try:
                    zk._connection._socket.shutdown(socket.SHUT_RDWR)
                except (AttributeError, OSError):
                    pass
            time.sleep(0.01)

    def session(self, client="main"):
        session_id, password = self.client(client).client_id
        return [hex(session_id), password.hex()]

    def attach(self, session_id, port, timeout=10000):
        """One more connection of somebody's session, which the servers take for its new home.
        It stays, silent, until detach(). A server that is asked for the session by two
        connections at once, the other being the owner's, forgets to answer one."""
        for attempt in range(5):
            server = socket.create_connection(("127.0.0.1", port), timeout=3 * FACTOR)
            self.attached.append(server)
            try:
                return resume(server, int(session_id, 0), timeout=timeout)
            except socket.timeout:
                if attempt == 4:
                    raise

    def detach(self):
        while self.attached:
            self.attached.pop().close()

    def expire_session(self, session_id, password=None, client="main"):
        """Resumes the session and closes it, in one packet: its owner, whose connection the
        server drops at that, has no time to come back in between."""
        with self.another_connection(client) as server:
            resume(server, int(session_id, 0), struct.pack(">ii", 1, -11), password)
            # The end of the connection says that it is done.
            while server.recv(4096):
                pass

    def foist(self, session_id, path, client="main"):
        """Creates an ephemeral sequential node in somebody's session, likewise."""
        name = path.encode()
        acl = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
        with self.another_connection(client) as server:
            resume(server, int(session_id, 0),
                   struct.pack(">iii", 1, 1, len(name)) + name + struct.pack(">i", 0) + acl +
                   struct.pack(">i", 3))
            server.recv(4096)

    def another_connection(self, client):
        address = self.client(client)._connection._socket.getpeername()
        return socket.create_connection(address, timeout=10 * FACTOR)

    def add_auth(self, scheme, credential, client="main"):
        self.client(client).add_auth(scheme, credential)

    # ---- nodes

    def create(self, path, client="main", data="", ephemeral=False, sequence=False,
               makepath=False, acl=None, hex=None):
        return self.client(client).create(
            path, bytes.fromhex(hex) if hex else data.encode(), ephemeral=ephemeral, sequence=sequence,
            makepath=makepath, acl=parse_acl(acl) if acl else None)

    def create_many(self, path, count, client="main", data=""):
        """So many ephemeral sequential nodes, without waiting for each."""
        zk = self.client(client)
        created = [zk.create_async(path, data.encode(), ephemeral=True, sequence=True)
                   for _ in range(int(count))]
        return [future.get(timeout=60 * FACTOR) for future in created][-1]

    def delete(self, path, client="main", recursive=False):
        self.client(client).delete(path, recursive=recursive)

    def remove(self, path, which, client="main"):
        """Deletes contenders of a path: the first, the last, or all and the path itself.
        Tells their czxids, also if the answer to a deletion was lost."""
        zk, result = self.client(client), {"czxids": [], "error": None}
        try:
            names = self.ls(path, client)
            for name in {"first": names[:1], "last": names[-1:], "all": names}[which]:
                stat = zk.exists(path + "/" + name)
                if stat:
                    result["czxids"].append(stat.czxid)
                    zk.delete(path + "/" + name)
            if which == "all":
                zk.delete(path)
        except Exception as error:
            result["error"] = "%s: %s" % (type(error).__name__, error)
        return result

    def set_acl(self, path, acl, client="main"):
        self.client(client).set_acls(path, parse_acl(acl))

    def acl(self, path, client="main"):
        return [[acl.perms, acl.id.scheme, acl.id.id] for acl in self.client(client).get_acls(path)[0]]

    def read(self, operation, path, client):
        """Reads what has been committed: a server of an ensemble may lag behind the others."""
        zk = self.client(client)
        zk.retry(zk.sync, path)
        return zk.retry(getattr(zk, operation), path)

    def ls(self, path, client="main", missing_ok=False):
        try:
            names = self.read("get_children", path, client)
        except NoNodeError:
            if not missing_ok:
                raise
            names = []
        return sorted(names, key=sequence_order)

    def get(self, path, client="main"):
        return text(self.read("get", path, client)[0])

    def set(self, path, data, client="main"):
        self.client(client).set(path, data.encode())

    def stat(self, path, client="main"):
        stat = self.exists(path, client)
        if stat is None:
            raise NoNodeError(path)
        return stat

    def exists(self, path, client="main"):
        stat = self.read("exists", path, client)
        return stat_dict(stat) if stat else None

    def ephemerals(self, client="main", path="/"):
        """All ephemeral nodes below a path."""
        zk, found = self.client(client), []

        def walk(node):
            for name in zk.get_children(node):
                child = node.rstrip("/") + "/" + name
                if child != "/zookeeper":
                    stat = zk.exists(child)
                    if stat and stat.ephemeralOwner:
                        found.append(child)
                    elif stat:
                        walk(child)
        walk(path)
        return sorted(found)

    # ---- kazoo's locks

    def new_lock(self, name, path, client, patterns, kind):
        if patterns is None:
            patterns = EXCLUSIVE_NAMES if kind == "shared" else EXCLUSIVE_NAMES + SHARED_NAMES
        return LOCKS[kind](self.client(client), path, identifier=name,
                           extra_lock_patterns=patterns)

    def lock(self, name, path, timeout=None, client="main", patterns=None, kind="exclusive"):
        lock = self.locks[name] = self.new_lock(name, path, client, patterns, kind)
        try:
            got = lock.acquire(blocking=timeout != 0, timeout=timeout or None)
        except LockTimeout:
            got = False
        if not got:
            del self.locks[name]
        return 1 if got else 0

    def unlock(self, name, client="main"):
        self.locks.pop(name).release()

    def cancel_lock(self, name, client="main"):
        self.locks[name].cancel()

    def counter(self, file, rounds, path, sleep=1, client="main", patterns=None,
                kind="exclusive"):
        """rounds times: lock; read the number in file, sleep, write it plus one; unlock."""
        lock = self.new_lock("counter", path, client, patterns, kind)
        for _ in range(int(rounds)):
            with lock:
                with open(file) as stream:
                    value = int(stream.read())
                time.sleep(sleep / 1000)
                with open(file, "w") as stream:
                    stream.write("%d\n" % (value + 1))
        return 1

    def contenders(self, path, client="main"):
        """Name and data of every node under a path, in order."""
        zk, result = self.client(client), []
        for name in self.ls(path, client):
            try:
                result.append([name, text(zk.get(path + "/" + name)[0])])
            except NoNodeError:
                pass
        return result

    # ---- kazoo's Election

    def stand(self, name, path, client="main"):
        """Stands until it has led and is told to leave."""
        election = Election(self.client(client), path, identifier=name)
        leads, end = threading.Event(), threading.Event()

        def lead():
            leads.set()
            end.wait()

        thread = threading.Thread(target=election.run, args=(lead,), daemon=True)
        self.candidates[name] = (election, leads, end, thread)
        thread.start()

    def leads(self, name, client="main"):
        return 1 if self.candidates[name][1].is_set() else 0

    def leaders(self, name, client="main"):
        """The candidates, in its opinion, the leader first."""
        return self.candidates[name][0].contenders()

    def leave(self, name, client="main"):
        election, leads, end, thread = self.candidates.pop(name)
        if leads.is_set():
            end.set()
        else:
            election.cancel()
        thread.join(10)

    # ---- the protocol

    def answer(self, **fields):
        line = json.dumps(fields)
        with self.output:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def run(self, ident, command, args, options):
        try:
            for flag in FLAGS.intersection(options):
                options[flag] = bool(options[flag])
            method = getattr(self, command)
            self.answer(id=ident, ok=True, result=method(*args, **options))
        except Exception as error:  # whatever it is, the requester has to know
            self.answer(id=ident, ok=False, error="%s: %s" % (type(error).__name__, error))

    def serve(self):
        commands = {name for name, _ in inspect.getmembers(self, inspect.ismethod)
                    if not name.startswith("_")}
        commands -= {"answer", "run", "serve", "client", "new_lock"}
        for line in sys.stdin:
            ident = None
            try:
                if line.lstrip().startswith("["):
                    ident, command, *args = json.loads(line)
                    options = args.pop() if args and isinstance(args[-1], dict) else {}
                else:
                    words = shlex.split(line, comments=True)
                    if not words:
                        continue
                    command, args, options = words[0], [], {}
                    for word in words[1:]:
                        key, equals, value = word.partition("=")
                        if equals and key.isidentifier():
                            options[key] = json.loads(value) if value[:1] in '[{"' else value
                        elif word in FLAGS:
                            options[word] = True
                        else:
                            args.append(float(word) if re.fullmatch(r"\d+(\.\d+)?", word)
                                        and command == "lock" else word)
                if command not in commands:
                    raise LookupError("unknown command %s" % command)
            except Exception as error:
                self.answer(id=ident, ok=False, error="%s: %s" % (type(error).__name__, error))
                continue
            if command in ("lock", "counter"):
                threading.Thread(target=self.run, args=(ident, command, args, options),
                                 daemon=True).start()
            else:
                self.run(ident, command, args, options)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    shell = Shell()
    try:
        shell.serve()
    finally:
        # As a good client: end the sessions, so that nothing stays until they expire.
        for zk in list(shell.clients.values()):
            try:
                zk.stop()
            except Exception:
                pass
