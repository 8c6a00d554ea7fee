"""What can go wrong on the operator's own machine: Java, jars, ports, disk, the embedded cluster, sample
data.
"""

from consumers.errors import WeirError


class LocalError(WeirError):
    """Something here has to be put right by a person.

    `str()` is one line: what happened, where, and what to do.
    """
