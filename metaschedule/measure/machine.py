"""What the system tells of the machine: who else uses its cores, and how fast these run.

All of it is for people, in messages that say why nothing can be measured; what is believed of a sample is
decided by `watch`. What a system does not tell is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
SLOWED = 0.9  # of the highest frequency: worth a word
STOLEN = 0.01  # of the time: worth a word


class Machine:
    """What went on since it was made, or last described, on some cores."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = cores
        self._stolen, self._since = stolen_seconds(cores), time.monotonic()

    def describe(self) -> str:
        """What keeps the machine busy, in a few words.

        >>> Machine([0]).describe().startswith("load ")
        True
        """
        now, seconds = stolen_seconds(self._cores), time.monotonic()
        share = (now - self._stolen) / max(1e-9, (seconds - self._since) * len(self._cores))
        self._stolen, self._since = now, seconds
        words = [f"load {os.getloadavg()[0]:.1f} on {count(len(self._cores), 'core')}"]
        if share > STOLEN:
            words.append(f"{share:.0%} of the time taken by the host")
        frequency = relative_frequency(self._cores)
        if frequency is not None and frequency < SLOWED:
            words.append(f"cores at {frequency:.0%} of their frequency")
        return ", ".join(words)


def count(number: int, what: str) -> str:
    """
    >>> count(1, "core"), count(2, "core")
    ('1 core', '2 cores')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def stolen_seconds(cores: Sequence[int]) -> float:
    """Seconds that the host of a virtual machine gave to others, of all these cores, since it started."""
    names = {f"cpu{core}" for core in cores}
    try:
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return 0.0
    return sum(int(row[8]) for row in rows if row and row[0] in names and len(row) > 8) / os.sysconf(
        "SC_CLK_TCK"
    )


def relative_frequency(cores: Sequence[int]) -> float | None:
    """Of the slowest core, beside the highest it can have; None if the system does not say."""
    try:
        return min(
            int((CPUS / f"cpu{core}/cpufreq/scaling_cur_freq").read_text())
            / int((CPUS / f"cpu{core}/cpufreq/cpuinfo_max_freq").read_text())
            for core in cores
        )
    except (OSError, ValueError, ZeroDivisionError):
        return None
