"""The package as it is installed, or as PYTHONPATH has it. `make python` runs these with numpy, pandas and pyarrow, `make test`
without them."""

import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from concurrent.futures import ThreadPoolExecutor
from random import Random

import iofair

FIGURE = os.path.join(os.path.dirname(__file__), "../../../reproduction/experiments/article-2018/figure-1.toml")
TRACE = os.path.join(os.path.dirname(__file__), "../../../crates/trace/tests/data/msr.csv.gz")
SHORT = {"time": "200ms", "ramp": "100ms"}
EXPERIMENT = {
    "title": "A random reader beside a sequential one",
    "source": "our own",
    "drive": "plextor-px256m5s",
    "time": "200ms",
    "ramp": "100ms",
    "stacks": ["prop-bfq"],
    "policy": {"bfq": {"low_latency": False}},
    "client": [
        {"name": "target", "job": "randread", "buffered": False},
        {"name": "other", "job": "read", "block": "256KiB", "buffered": False, "depth": 4},
    ],
}
KEYS = {"policy.bfq.slice_idle": ["0s", "2ms", "8ms"], "client.target.weight": [100, 300]}


class Fifo:
    """First come, first served."""

    def __init__(self, drive):
        self.queue = []

    def submit(self, request):
        self.queue.append(request)

    def dispatch(self, now, in_flight):
        return self.queue.pop(0) if self.queue else None


class Pausing(Fifo):
    """One request in the drive at a time, a pause of 1 ms after each, small ones first; counts what it is told."""

    seen = []

    def __init__(self, drive):
        super().__init__(drive)
        self.free_at = 0
        Pausing.seen.append(drive)

    def dispatch(self, now, in_flight):
        if not self.queue or in_flight > 0 or now < self.free_at:
            return None
        first = min(self.queue, key=lambda request: (request.length, request.submitted))
        self.queue.remove(first)
        return first

    def complete(self, request, now):
        assert now > request.submitted and request not in self.queue
        self.free_at = now + 1_000_000

    def next_wakeup(self):
        return self.free_at if self.queue else None


def strides(process):
    """Reads every second block, once."""
    for offset in range(0, process.file_size, 2 * process.block):
        done = yield iofair.read(offset, process.block)
        assert done.latency > 0 and done.now >= done.latency
        if offset >= 40 * process.block:
            return


def writer(process):
    """Writes blocks by chance, a flush after each, with pauses."""
    random = Random(process.seed)
    while True:
        block = random.randrange(process.file_size // process.block)
        yield iofair.write(block * process.block, process.block)
        done = yield iofair.flush()
        assert done.latency is not None
        done = yield iofair.wait("1ms")
        assert done.latency is None


def has(module):
    return importlib.util.find_spec(module) is not None


class Runs(unittest.TestCase):
    def test_results_are_those_of_the_program(self):
        """Goal: the package and the program agree to the byte. Method: a figure of the article with both."""
        ours = iofair.run(FIGURE, stacks=["none-none", "promise"], repeats=2, **SHORT)
        command = [os.environ["IOFAIR_PROGRAM"], "run", "--json", "--quiet", FIGURE, "--stack", "none-none"]
        command += ["--stack", "promise", "--repeats", "2", "--time", "200ms", "--ramp", "100ms"]
        theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertEqual(ours.data, json.loads(theirs))
        self.assertEqual(len(ours.runs), 2 * 2 * len({run["variant"] for run in ours.runs}))
        self.assertEqual(iofair.run(FIGURE, stacks=["promise"], jobs=1, **SHORT), iofair.run(FIGURE, stacks=["promise"], jobs=3, **SHORT))

    def test_an_experiment_has_three_forms(self):
        """Goal: a dictionary, its text and a file mean the same. Method: all three; a name that needs quotes."""
        odd = {**EXPERIMENT, "title": 'A "quoted" one\n\\ \u00e4'}
        text = iofair.load(odd).text
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "experiment.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            results = [iofair.run(form) for form in (odd, text, path)]
        self.assertEqual(results[0].data["title"], odd["title"])
        self.assertEqual(results[0].runs, results[1].runs)
        self.assertEqual(results[0].runs, results[2].runs)
        with self.assertRaisesRegex(TypeError, "no values of type bytes"):
            iofair.run({**EXPERIMENT, "title": b"x"})

    def test_errors_say_what_is_wrong_and_where(self):
        """Goal: errors are those of the program. Method: a misspelt stack, drive, variant, time and key."""
        for change, words in [
            ({"stacks": ["promis"]}, r'experiment:\d+:\d+: there is no stack "promis"'),
            ({"drive": "nix"}, 'no drive profile "nix"'),
            ({"clients": []}, "clients"),
        ]:
            with self.assertRaisesRegex(iofair.ExperimentError, words):
                iofair.run({**EXPERIMENT, **change})
        with self.assertRaisesRegex(iofair.ExperimentError, "no variant"):
            iofair.run(FIGURE, variants=["nix"])
        with self.assertRaises(iofair.ExperimentError):
            iofair.run(EXPERIMENT, time="2")

    def test_ctrl_c_ends_a_run(self):
        """Goal: a long run can be interrupted. Method: a program that runs for minutes, and SIGINT."""
        # A test that runs in the background may ignore it.
        heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        text = f"{heard}import iofair\nprint('begins', flush=True)\niofair.run({EXPERIMENT!r}, time='1000s', jobs=1)\n"
        program = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        program.stdout.readline()
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", told)


class Sweeps(unittest.TestCase):
    def test_all_ways_give_the_same(self):
        """Goal: where a sweep runs changes nothing. Method: processes, threads, and one run after the other by hand."""
        here = iofair.sweep(EXPERIMENT, KEYS)
        self.assertEqual(here, iofair.sweep(EXPERIMENT, KEYS, executor=ThreadPoolExecutor(2)))
        rows = [row for row in here.rows() if row["client"] == "target"]
        self.assertEqual([row["policy.bfq.slice_idle"] for row in rows], ["0s", "0s", "2ms", "2ms", "8ms", "8ms"])
        for row in rows:
            keys = {key: row[key] for key in KEYS}
            alone = [it for it in iofair.run(EXPERIMENT, set=keys).rows() if it["client"] == "target"]
            self.assertEqual(row["bytes_per_s"], alone[0]["bytes_per_s"])
        self.assertEqual(len(iofair.sweep(EXPERIMENT, KEYS, sample=4).runs), 4)

    def test_lost_work_is_repeated(self):
        """Goal: a worker that is killed changes nothing. Method: SIGKILL for the first process that appears."""
        killed = []

        def kill():
            children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
            for _ in range(2000):
                with open(children, encoding="ascii") as file:
                    pids = [int(pid) for pid in file.read().split()]
                if pids:
                    time.sleep(0.05)
                    try:
                        os.kill(pids[0], signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed.append(pids[0])
                    return
                time.sleep(0.005)

        thread = threading.Thread(target=kill)
        thread.start()
        results = iofair.sweep(EXPERIMENT, KEYS, time="20s", workers=2)
        thread.join()
        self.assertEqual(len(killed), 1)
        self.assertEqual(results, iofair.sweep(EXPERIMENT, KEYS, time="20s", executor=ThreadPoolExecutor(2)))


class Programs(unittest.TestCase):
    def test_a_policy_in_python_is_a_policy(self):
        """Goal: a scheduler in Python gives what the same one in Rust gives. Method: first come, first served beside `none`,
        whose requests are all in the drive's order of arrival, on a drive with more slots than requests."""
        results = iofair.run(EXPERIMENT, stacks=["none-none", "prop-fifo"], policies={"fifo": Fifo})
        runs = {run["stack"]: run for run in results.runs}
        self.assertEqual(runs["none-none"]["clients"], runs["prop-fifo"]["clients"])
        self.assertEqual(len(iofair.run(EXPERIMENT, policies={"fifo": Fifo}).runs), 2)
        self.assertEqual([run["stack"] for run in iofair.run(EXPERIMENT, stacks=["max-fifo"], policies={"fifo": Fifo}).runs], ["max-fifo"])

    def test_a_policy_may_hold_requests(self):
        """Goal: completions, wake-ups and what requests say. Method: one request at a time with pauses, small ones first."""
        results = iofair.run(EXPERIMENT, stacks=["prop-pausing"], policies={"pausing": Pausing})
        clients = {row["client"]: row for row in results.rows()}
        self.assertTrue(100 < clients["total"]["iops"] < 1000)
        self.assertGreater(clients["target"]["iops"], 0.4 * clients["total"]["iops"])
        drive = Pausing.seen[-1]
        self.assertEqual((drive.rotational, drive.capacity > 1e11), (False, True))
        self.assertEqual(results, iofair.run(EXPERIMENT, stacks=["prop-pausing"], policies={"pausing": Pausing}))

    def test_policies_that_fail_are_told(self):
        """Goal: exceptions of policies reach the caller, and mistakes are named. Method: one that raises, one that invents
        requests, one that holds all of them for ever, names that cannot be."""

        class Raises(Fifo):
            def submit(self, request):
                raise KeyError("mine")

        class Invents(Fifo):
            def dispatch(self, now, in_flight):
                return 7

        class Holds(Fifo):
            def dispatch(self, now, in_flight):
                return None

        for policy, error, words in [
            (Raises, KeyError, "mine"),
            (Invents, ValueError, "dispatch returned 7: allowed are a request that it holds"),
            (Holds, RuntimeError, "holds 1 requests while the drive is idle"),
            (len, TypeError, "has no len"),
        ]:
            with self.assertRaisesRegex(error, words):
                iofair.run(EXPERIMENT, stacks=["prop-mine"], policies={"mine": policy})
        for name in ("bfq", "Mine", "a-b", ""):
            with self.assertRaisesRegex(ValueError, "policies: "):
                iofair.run(EXPERIMENT, policies={name: Fifo})

    def test_policies_are_forgotten(self):
        """Goal: many trials in one program keep no policy alive. Method: what makes one, after its run."""

        class Maker:
            def __call__(self, drive):
                return Fifo(drive)

        maker = Maker()
        gone = weakref.ref(maker)
        iofair.run(EXPERIMENT, stacks=["prop-mine"], policies={"mine": maker})
        del maker
        gc.collect()
        self.assertIsNone(gone())

    def test_a_client_in_python_is_a_client(self):
        """Goal: a generator decides what a client does. Method: 21 reads and no more; a writer that flushes; a sweep on
        processes."""
        results = iofair.run({**EXPERIMENT, "ramp": "0s"}, stacks=["none-none"], clients={"other": strides})
        other = {row["client"]: row for row in results.rows()}["other"]
        run = results.runs[0]
        self.assertEqual(round(other["bytes_per_s"] * run["seconds"]), 4 * 21 * 256 * 1024, "four calls in flight, a generator each")
        writes = iofair.run(EXPERIMENT, clients={"target": writer})
        self.assertEqual(writes, iofair.run(EXPERIMENT, clients={"target": writer}))
        self.assertGreater({row["client"]: row for row in writes.rows()}["target"]["iops"], 50)
        swept = iofair.sweep(EXPERIMENT, {"client.other.depth": [1, 2]}, clients={"target": writer}, workers=2)
        self.assertEqual(len(swept.runs), 2)

    def test_clients_that_fail_are_told(self):
        """Goal: mistakes of clients are named. Method: a bad place, a bad action, no generator, an exception, no such client."""

        def outside(process):
            yield iofair.read(process.file_size, 4096)

        def words(process):
            yield "read"

        def raises(process):
            yield iofair.wait(0)
            raise KeyError("mine")

        for client, error, words in [
            (outside, ValueError, '"target" asked for 4096 bytes at'),
            (words, TypeError, "allowed are iofair.read, write"),
            (raises, KeyError, "mine"),
            (lambda process: None, TypeError, "must yield"),
        ]:
            with self.assertRaisesRegex(error, words):
                iofair.run(EXPERIMENT, clients={"target": client})
        with self.assertRaisesRegex(ValueError, 'no client "nobody"'):
            iofair.run(EXPERIMENT, clients={"nobody": strides})
        for call, words in [(lambda: iofair.read(1, 512), "multiples of 512"), (lambda: iofair.write(0, 0), "length = 0"), (lambda: iofair.wait("2"), "2")]:
            with self.assertRaisesRegex(ValueError, words):
                call()


class Tools(unittest.TestCase):
    def test_a_replay_is_that_of_the_program(self):
        """Goal: the package and the program agree to the byte, and policies in Python replay. Method: a trace of MSR Cambridge."""
        options = ["--drive", "plextor-px256m5s", "--mode", "closed", "--stack", "none-none", "--stack", "promise"]
        command = [os.environ["IOFAIR_PROGRAM"], "replay", "--json", TRACE, *options]
        theirs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours = iofair.replay(TRACE, drive="plextor-px256m5s", mode="closed", stacks=["none-none", "promise"])
        self.assertEqual(ours.data, theirs)
        mine = iofair.replay([TRACE], drive="plextor-px256m5s", policies={"fifo": Fifo}, groups={"*": "all"})
        self.assertEqual([it["stack"] for it in mine.results][-1], "prop-fifo")
        self.assertEqual([it["name"] for it in mine.results[-1]["groups"]], ["all"])
        for options, words in [({}, "add --drive"), ({"drive": "x"}, "drive"), ({"mode": "x"}, "allowed are open"), ({"scale": 0}, "0.001")]:
            with self.assertRaisesRegex(ValueError, words):
                iofair.replay(TRACE, **options)

    @unittest.skipUnless(has("pandas"), "takes a minute: with pandas only")
    def test_a_drive_is_fitted(self):
        """Goal: a model is found again, and its profile is a drive. Method: measured in simulated time; the rate of a reader on
        both."""
        found = iofair.calibrate("plextor-px256m5s")
        self.assertLess(found.report["fitted_error_percent"], 5)
        self.assertEqual(len(found.to_pandas()), len(found.report["rows"]))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "found.toml")
            found.save(path)
            rates = [iofair.run(EXPERIMENT, stacks=["none-none"], drive=drive).runs[0]["total"]["bytes_per_s"] for drive in (path, "plextor-px256m5s")]
        self.assertAlmostEqual(rates[0] / rates[1], 1, delta=0.05)

    def test_what_cannot_be_fitted_is_told(self):
        """Goal: errors of calibrations are named. Method: no such drive, no such file, not results of fio, nothing."""
        for arguments, words in [
            ({"drive": "nix"}, "no drive profile"),
            ({"results": "nowhere.json"}, "nowhere.json: No such file"),
            ({"results": __file__}, "test_package.py: "),
            ({}, "give a drive, or results"),
        ]:
            with self.assertRaisesRegex(iofair.ExperimentError, words):
                iofair.calibrate(**arguments)


class Tables(unittest.TestCase):
    def test_rows_have_every_client(self):
        """Goal: rows are the runs' numbers. Method: columns beside the JSON."""
        results = iofair.run(EXPERIMENT)
        columns = results.columns()
        self.assertEqual(columns["client"], ["total", "target", "other"])
        clients = {client["name"]: client for client in results.runs[0]["clients"]}
        self.assertEqual(columns["bytes_per_s"][1], clients["target"]["bytes_per_s"])
        self.assertEqual(columns["latency_p99_ns"], [None, *(clients[it]["latency_ns"]["p99"] for it in ("target", "other"))])

    @unittest.skipUnless(has("numpy") and has("pandas") and has("pyarrow"), "needs numpy, pandas and pyarrow")
    def test_tables_of_others(self):
        """Goal: the same rows in numpy, pandas and Arrow. Method: lengths, a mean and missing numbers."""
        results = iofair.sweep(EXPERIMENT, KEYS)
        arrays, frame, table = results.to_numpy(), results.to_pandas(), results.to_arrow()
        self.assertEqual(len(frame), len(results.runs) * 3)
        self.assertEqual(table.num_rows, len(frame))
        total = arrays["bytes_per_s"][arrays["client"] == "total"].mean()
        self.assertAlmostEqual(total, frame[frame.client == "total"].bytes_per_s.mean())
        self.assertEqual(frame.latency_p99_ns.isna().sum(), len(results.runs))
        self.assertEqual(table["latency_p99_ns"].null_count, len(results.runs))

    @unittest.skipUnless(has("distributed"), "needs distributed")
    def test_dask_gives_the_same(self):
        """Goal: machines change nothing. Method: a cluster of two processes on this one."""
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            self.assertEqual(iofair.sweep(EXPERIMENT, KEYS, client=client), iofair.sweep(EXPERIMENT, KEYS))


if __name__ == "__main__":
    unittest.main()
