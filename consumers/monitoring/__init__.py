"""Where measurements go, and how others see that a consumer is alive. Knows no broker, no table and no engine."""
