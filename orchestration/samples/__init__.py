"""The sample topics: flights and weather of 2013, and generated account transactions. For the demo and for tests."""
