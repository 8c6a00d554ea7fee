"""What a job computes and how it becomes visible: planned and published from Delta's logs alone. Knows no Dagster and no session.

A job's life: `plan` compares what the inputs hold with what the output was computed from; somebody computes the plan's `request`
into an attempt that no reader sees; `publish` makes the attempt part of the output in one commit.
"""
