"""The API server: credentials, one thin HTTP client, watches, Leases. Nothing else speaks to it.

The agent's use of the API is small (its object, one pod watch, a Lease), so the transport is plain
aiohttp: a generated client would cost half of the agent's memory.
"""
