"""``rte view``: the zones of a cluster as a page in a browser.

``model`` makes JSON values of what is known of a cluster (pure), ``history`` remembers them within
bounds (pure), ``groups`` and ``claims`` tell what processing groups and claims hold, ``hardware``
draws one node, ``tries`` answers what-ifs about pods that ``manifest`` reads, ``source`` follows a
living cluster, ``routes`` serves the page and its data, and ``page`` puts the page together, also
as one file without a server.
"""
