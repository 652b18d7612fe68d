"""A SLURM of one node on loopback, for tests: munge, a controller and a node, started as root and without systemd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ETC = Path("/etc/slurm")  # nowhere else: the plugin's inner srun does not pass SLURM_CONF on
MUNGE = Path("/run/munge")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue")
CLUSTER = "qlocaladam-tests"
PATIENCE = 300
"""Seconds until something that never happens fails a test."""

# cred_expire is what a requeued job waits before it starts again. Jobs of seconds are to follow each other at once: by
# itself SLURM lets seconds go by before it looks at its queue. The GPU is a file that SLURM counts and nobody opens.
SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
OverTimeLimit=0
KillWait=2
SlurmdTimeout=5
MessageTimeout=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 Gres=gpu:1
PartitionName=tests Nodes={host} Default=YES
"""
GRES_CONF = "NodeName={host} Name=gpu File={folder}/gpu\n"


def why_not() -> str:
    """Why no SLURM can be started here, or nothing."""
    if os.geteuid() != 0:
        return "a SLURM for tests is started as root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install --no-install-recommends slurm-wlm munge"
    conf = ETC / "slurm.conf"
    if conf.exists() and CLUSTER not in conf.read_text():
        return f"this machine has a SLURM of its own: {conf}"
    return ""


def until(happened: Callable[[], object], what: str) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"not after {PATIENCE} s: {what}"
        time.sleep(0.05)


class Slurm:
    """The processes of one SLURM, and what its users ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        MUNGE.mkdir(exist_ok=True)
        shutil.chown(MUNGE, "munge", "munge")
        self._run("munged", "--foreground", user="munge", group="munge", extra_groups=[])
        until(lambda: _works("munge", "-n"), "munge answers")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "gpu").touch()
        self._run("slurmctld", "-D", "-i")
        until(lambda: _works("scontrol", "ping"), "slurmctld answers")
        self.start_node()

    def start_node(self) -> None:
        self._run("slurmd", "-D", cwd=self.folder / "spool")
        until(lambda: self.ask("sinfo", "-h", "-o", "%T") in ("idle", "mixed", "allocated"), "the node is up")

    def kill_node(self) -> None:
        """As when the power goes: nothing that ran on the node is left, and nobody is told."""
        self._end("slurmd", signal.SIGKILL)
        while left := [*self._watchers(), *_tasks()]:  # watchers first: they would report the death of their tasks
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        if "slurmd" in self.processes:
            self.kill_node()
        for name in list(self.processes):
            self._end(name, signal.SIGTERM)

    def ask(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def queue(self, *fields: str) -> list[list[str]]:
        """These fields of each job that is not over."""
        wide = ",".join(f"{field}:200" for field in fields)
        return [line.split() for line in self.ask("squeue", "--noheader", f"--Format={wide}").splitlines()]

    def _watchers(self) -> list[int]:
        """The slurmstepd of each job and step; they stay when slurmd goes, and in the folder that it was started in."""
        return _processes(lambda process: os.readlink(process / "cwd") == str(self.folder / "spool"))

    def _run(self, name: str, *arguments: str, **options: object) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(shutil.which(name)), *arguments]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, **options)

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait()


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A SLURM that lives as long as the block. Its configuration is where a machine of a cluster has its own."""
    host = socket.gethostname().partition(".")[0]
    texts = {"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF}
    ETC.mkdir(exist_ok=True)
    node = Slurm(folder)
    try:
        for name, text in texts.items():
            (ETC / name).write_text(text.format(host=host, folder=folder, cluster=CLUSTER))
        node.start()
        yield node
    finally:
        node.stop()
        for name in texts:
            (ETC / name).unlink(missing_ok=True)


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _tasks() -> list[int]:
    """What the jobs of this SLURM run."""
    mark = f"SLURM_CLUSTER_NAME={CLUSTER}".encode()
    return _processes(lambda process: mark in (process / "environ").read_bytes().split(b"\0"))


def _processes(wanted: Callable[[Path], bool]) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if wanted(process):
                found.append(int(process.name))
    return found
