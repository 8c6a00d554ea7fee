"""All scenarios, in the order of the matrix. Importing one registers it."""

# ruff: noqa: I001 - the order is that of the matrix
from tests.faults.scenarios import kill_at_boundaries as kill_at_boundaries
from tests.faults.scenarios import kill_at_random as kill_at_random
from tests.faults.scenarios import frozen as frozen
from tests.faults.scenarios import lost_acknowledgement as lost_acknowledgement
from tests.faults.scenarios import put_fails as put_fails
from tests.faults.scenarios import put_slow as put_slow
from tests.faults.scenarios import dead_letters_down as dead_letters_down
from tests.faults.scenarios import disk_full as disk_full
from tests.faults.scenarios import five_writers as five_writers
from tests.faults.scenarios import interleavings as interleavings
from tests.faults.scenarios import transactions as transactions
from tests.faults.scenarios import retention as retention
from tests.faults.scenarios import partitions_added as partitions_added
from tests.faults.scenarios import poison as poison
from tests.faults.scenarios import leader_bounced as leader_bounced
from tests.faults.scenarios import brokers_killed as brokers_killed
