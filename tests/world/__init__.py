"""The whole cluster in one clock: real shells, one seed, no thread, no socket, no waiting.

``python -m tests.world --help`` says how it is played.
"""
