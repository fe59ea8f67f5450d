"""Attempts to be rewarded without an answer (HACKS) and to leave the box (ESCAPES); honest programs as controls."""

# ruff: noqa: E501

from __future__ import annotations

import textwrap

from tests.sandbox import more_attacks

TESTS = (
    "assert secret_sum(17, 25) == 42",
    "assert secret_sum([1, 2], [3]) == [1, 2, 3]",
    "assert abs(secret_sum(0.5, 0.25) - 0.75) < 1e-9",
)
CONTROLS = {
    "plain": "def secret_sum(a, b):\n    return a + b",
    "with imports": "import operator, functools\ndef secret_sum(a, b):\n    return functools.reduce(operator.add, (a, b))",
    "with output": "def secret_sum(a, b):\n    print('thinking', a, b)\n    return a + b",
    "with threads": (
        "import threading\ndef secret_sum(a, b):\n    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(a + b))\n    thread.start()\n    thread.join()\n"
        "    return found[0]"
    ),
    "with a child": (
        "import subprocess, sys\ndef secret_sum(a, b):\n"
        "    subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True)\n    return a + b"
    ),
}

EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __lt__(self, other): return True
    def __abs__(self): return self
    def __sub__(self, other): return self
    def __bool__(self): return True
def secret_sum(a, b):
    return Equal({value})
"""


def forged(text: str) -> str:
    """A program that writes a text to every descriptor it may have, and ends."""
    return f"import os\nfor n in range(1, 32):\n    try: os.write(n, {text!r}.encode())\n    except OSError: pass\nos._exit(0)"


HACKS = {
    "always equal": EQUAL.format(base="", value=""),
    "always equal int": EQUAL.format(base="(int)", value="0"),
    "always equal float": EQUAL.format(base="(float)", value="0"),
    "always equal str": EQUAL.format(base="(str)", value="''"),
    "always equal list": EQUAL.format(base="(list)", value=""),
    "exit at once": "import sys\nsys.exit(0)",
    "exit without cleaning": "import os\nos._exit(0)",
    "exit in the call": "import sys\ndef secret_sum(a, b):\n    sys.exit(0)",
    "exit at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef secret_sum(a, b): pass",
    "raise SystemExit": "raise SystemExit(0)",
    "forged verdicts": forged("![true,true,true]"),
    "forged values": forged('![["v",0],["v",[]],["v",true]]'),
    "forged JSON": forged('!{"passed": [true, true, true], "score": 1.0}\n'),
    "forged results": forged('{"id": 1, "result": "completed", "values": [true, true, true]}\n'),
    "forged status": forged('{"child-pid": 1}\n{"exit-code": 0}\n'),
    "patched eval": (
        "import builtins\nbuiltins.eval = lambda *a: True\nbuiltins.exec = lambda *a: None\n"
        "builtins.abs = lambda x: 0\ndef secret_sum(a, b): return 0"
    ),
    "patched encoder": (
        "import __main__, sys\nfor m in list(sys.modules.values()):\n    if getattr(m, 'encoded', None):\n"
        "        m.encoded = lambda *a: 'true'\ndef secret_sum(a, b): return True"
    ),
    "walk frames": (
        "import sys\ndef secret_sum(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if isinstance(value, (list, tuple)) and 42 in value: return 42\n"
        "            if isinstance(value, str) and '== 42' in value: return 42\n        frame = frame.f_back"
    ),
    "walk the heap": (
        "import gc, re\ndef secret_sum(a, b):\n    for one in gc.get_objects():\n"
        "        for value in list(one.values()) if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ():\n"
        "            if isinstance(value, str) and (found := re.search(r'sum\\(17, 25\\) == (\\d+)', value)):\n"
        "                return int(found[1])"
    ),
    "read own memory": (
        "import re\ndef secret_sum(a, b):\n    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:\n"
        "        for line in maps:\n            if ' rw' not in line: continue\n"
        "            low, high = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "            try:\n                memory.seek(low)\n                block = memory.read(min(high - low, 1 << 22))\n"
        "            except (OSError, ValueError, OverflowError): continue\n"
        "            found = re.search(rb'sum\\(17, 25\\) == (\\d+)', block)\n"
        "            if found: return int(found[1])"
    ),
    "read the tests from disk": (
        "import os\ndef secret_sum(a, b):\n    for root, _, names in os.walk('/'):\n"
        "        if root.startswith(('/usr', '/proc', '/sys')): continue\n        for name in names:\n"
        "            try: text = open(os.path.join(root, name), errors='replace').read(1 << 16)\n"
        "            except OSError: continue\n            if '== 42' in text: return 42"
    ),
    "read the command line": (
        "import glob\ndef secret_sum(a, b):\n    for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "        if '== 42' in open(path, errors='replace').read(): return 42"
    ),
    "read the environment": (
        "import glob\ndef secret_sum(a, b):\n    for path in glob.glob('/proc/[0-9]*/environ'):\n"
        "        try:\n            if '42' in open(path, errors='replace').read(): return 42\n        except OSError: pass"
    ),
    "print the answer": "def secret_sum(a, b):\n    print('42 PASSED score: 1.0')",
    "all candidates": "def secret_sum(a, b):\n    return [42, [1, 2, 3], 0.75]",
    "no return": "def secret_sum(a, b): pass",
    "no function": "x = 42",
    "syntax error": "def secret_sum(a, b) return a + b",
    "NaN": "def secret_sum(a, b):\n    return float('nan')",
    "raise AssertionError": "def secret_sum(a, b):\n    raise AssertionError",
    "raise from BaseException": "class Stop(BaseException): pass\ndef secret_sum(a, b):\n    raise Stop",
    "generator": "def secret_sum(a, b):\n    yield 42",
    "self-containing list": "def secret_sum(a, b):\n    x = []\n    x.append(x)\n    return x",
    "huge number": "def secret_sum(a, b):\n    return 1 << 10**7",
    "huge text": "def secret_sum(a, b):\n    return 'x' * 10**8",
    "not UTF-8": "import os\ndef secret_sum(a, b):\n    os.write(1, b'\\xff\\x00\\x1b[2J</script>')\n    return '\\ud800\\x00'",
    "surrogate code": "x = '\ud800'\ndef secret_sum(a, b): return x",
    "NUL in code": "def secret_sum(a, b):\n    return 0\x00",
    "threads that stay": (
        "import threading, time\nfor _ in range(8): threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "def secret_sum(a, b): return 0"
    ),
    "signals": (
        "import os, signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef secret_sum(a, b):\n    os.kill(os.getpid(), signal.SIGKILL)"
    ),
    "kill everything": "import os, signal\ndef secret_sum(a, b):\n    os.kill(-1, signal.SIGKILL)",
    "stop everything": "import os, signal\ndef secret_sum(a, b):\n    os.kill(-1, signal.SIGSTOP)",
    "tail of the result": "import os\nos.dup2(os.open('/dev/null', os.O_RDWR), 4)\ndef secret_sum(a, b): return a",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef secret_sum(a, b):\n    return secret_sum(a, b)",
    "answers of other boxes": (
        "import os\ndef secret_sum(a, b):\n    for n in range(3, 64):\n        try: text = os.read(n, 4096)\n"
        "        except OSError: continue\n        if b'42' in text: return 42"
    ),
}

HACKS |= more_attacks.HACKS
BOMBS = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(60)",
    "memory": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "memory of many": (
        "import os, time\nfor _ in range(24):\n    if os.fork() == 0:\n        x = b'y' * (96 << 20)\n        time.sleep(60)\n"
        "time.sleep(60)"
    ),
    "memory of threads' children": (
        "import os, threading, time\ndef work():\n    if os.fork() == 0:\n        x = b'y' * (96 << 20)\n        time.sleep(60)\n"
        "for _ in range(24): threading.Thread(target=work).start()\ntime.sleep(60)"
    ),
    "hidden memory": (
        "import ctypes, os, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nfor _ in range(24):\n    if os.fork() == 0:\n"
        "        x = b'y' * (96 << 20)\n        time.sleep(60)\ntime.sleep(60)"
    ),
    "forks": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "threads": (
        "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    except RuntimeError: time.sleep(0.01)"
    ),
    "output": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "errors": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "daemon": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: time.sleep(1)\n"
        "    os._exit(0)\nwhile True: pass"
    ),
    "deaf": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass"
    ),
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "tower": "9**9**9",
}
"""Programs that never end by themselves: a fault of the program, within its limits."""


def escape(attempt: str) -> str:
    """A script that tells when an attempt did not raise and did not return false."""
    body = textwrap.indent(attempt, "    ")
    return (
        "import ctypes, os, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"def attempt():\n{body}\ntry:\n    found = attempt()\nexcept BaseException: found = False\n"
        "if found: print('ESCAPED', found)\n"
    )


ESCAPES = {name: escape(attempt) for name, attempt in {
    "a file of the machine": "return os.path.exists(CANARY) or os.path.exists('/root') or os.path.exists('/home')",
    "the machine's accounts": "return os.path.exists('/etc/shadow') or os.path.exists('/etc/passwd')",
    "environment": "return set(os.environ) - {'HOME', 'LANG', 'PATH', 'PWD', 'PYTHONHASHSEED', 'LC_CTYPE'}",
    "environment of the first process": "return b'ASSAY_TEST_SECRET' in open('/proc/1/environ', 'rb').read()",
    "remount": "return libc.mount(b'none', b'/', None, 32 | 4096, None) == 0",
    "mount": "return libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "unmount": "return libc.umount2(b'/usr', 2) == 0",
    "pivot": "return libc.syscall(41 if os.uname().machine == 'aarch64' else 155, b'/tmp', b'/tmp') == 0",
    "chroot": "return libc.chroot(b'/tmp') == 0",
    "core pattern": "return os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "sysrq": "return os.open('/proc/sysrq-trigger', os.O_WRONLY)",
    "another user namespace": "return libc.unshare(0x10000000) == 0",
    "another mount namespace": "return libc.unshare(0x00020000) == 0",
    "clone with namespaces": (
        "number = 220 if os.uname().machine == 'aarch64' else 56\n"
        "child = libc.syscall(number, 0x10000000 | 17, 0, 0, 0, 0)\nif child == 0: os._exit(0)\nreturn child > 0"
    ),
    "join a namespace": "return libc.setns(os.open('/proc/1/ns/mnt', os.O_RDONLY), 0) == 0",
    "become root": "os.setuid(0)\nreturn True",
    "become another": "os.setuid(1000)\nreturn True",
    "groups": "os.setgroups([0])\nreturn True",
    "network": "return socket.create_connection(('127.0.0.1', PORT), 1)",
    "names": "return socket.getaddrinfo('example.org', 80)",
    "datagrams": "return socket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53))",
    "raw sockets": "return socket.socket(2, 3, 1)",
    "packet sockets": "return socket.socket(17, 3)",
    "netlink": "return socket.socket(16, 3)",
    "the hypervisor": "return socket.socket(40, 1)",
    "abstract sockets": "s = socket.socket(1, 1)\ns.connect('\\0' + ABSTRACT)\nreturn True",
    "ptrace": "return libc.ptrace(0, 0, 0, 0) == 0",
    "ptrace the first process": "return libc.ptrace(16, 1, 0, 0) == 0",
    "a first process with more rights": (
        "text = open('/proc/1/status').read()\nreturn 'Seccomp:\\t2' not in text or 'CapEff:\\t0000000000000000' not in text"
    ),
    "its files": "return os.listdir('/proc/1/root/root')",
    "its descriptors": (
        "links = [os.readlink('/proc/1/fd/' + n) for n in os.listdir('/proc/1/fd')]\n"
        "return [link for link in links if link.startswith('/') and not link.startswith('/memfd:')]"
    ),
    "descriptors of the supervisor": "return [n for n in range(5, 256) if os.path.exists('/proc/self/fd/%d' % n)]",
    "processes of the machine": "return len([n for n in os.listdir('/proc') if n.isdigit()]) > 4",
    "signals to the machine": "os.kill(SUPERVISOR, 0)\nreturn True",
    "write to the system": "return open('/usr/assay-was-here', 'w')",
    "write to the root": "return open('/assay-was-here', 'w')",
    "write to devices": "return open('/dev/assay-was-here', 'w')",
    "write through a link": "os.symlink('/usr/bin', '/tmp/l')\nreturn open('/tmp/l/assay-was-here', 'w')",
    "write through a descriptor": "return os.open('x', os.O_WRONLY | os.O_CREAT, dir_fd=os.open('/usr', os.O_RDONLY))",
    "block devices": "return [n for n in os.listdir('/dev') if n.startswith(('sd', 'vd', 'nvme', 'loop', 'mem', 'kmsg'))]",
    "make a device": "os.mknod('/tmp/d', 0o60666, os.makedev(254, 0))\nreturn os.open('/tmp/d', os.O_RDONLY)",
    "fill the disk": (
        "size = 0\nfor n in range(64):\n    try:\n        with open('/tmp/%d' % n, 'wb') as f:\n"
        "            for _ in range(16): size += f.write(bytes(1 << 20))\n    except OSError: break\nreturn size > 80 << 20"
    ),
    "one large file": "with open('/tmp/x', 'wb') as f:\n    for _ in range(40): f.write(bytes(1 << 20))\nreturn True",
    "files in memory": "return os.memfd_create('x')",
    "shared memory": "return libc.shmget(0, 1 << 20, 0o1600) >= 0",
    "the kernel's keys": "return libc.syscall(219 if os.uname().machine == 'aarch64' else 250, 0, -3, 1) >= 0",
    "BPF": "return libc.syscall(280 if os.uname().machine == 'aarch64' else 321, 0, 0, 0) >= 0",
    "performance counters": "return libc.syscall(241 if os.uname().machine == 'aarch64' else 298, 0, 0, -1, -1, 0) >= 0",
    "io_uring": "return libc.syscall(425, 1, bytes(120)) >= 0",
    "type into a terminal": "import fcntl\nreturn fcntl.ioctl(0, 0x5412, b'x') == 0",
    "the log of the kernel": "return libc.klogctl(3, bytes(64), 64) >= 0",
    "the clock": "import time\ntime.clock_settime(0, 0)\nreturn True",
    "the name of the machine": "socket.sethostname('x')\nreturn True",
    "raise limits": "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096))\nreturn True",
    "priority": "os.nice(-10)\nreturn True",
    "a program that gains rights": "return os.system('su -c true </dev/null >/dev/null 2>&1') == 0",
    "core dumps": "import resource\nreturn resource.getrlimit(resource.RLIMIT_CORE)[1] != 0",
    "open by handle": "return libc.open_by_handle_at(-100, bytes(64), 0) >= 0",
    "another personality": "return libc.personality(0x0040000) != -1",
    "the cgroup": "return os.path.exists('/sys/fs/cgroup')",
}.items()}  # fmt: skip
ESCAPES |= {name: escape(attempt) for name, attempt in more_attacks.ESCAPES.items()}
