# Two images from one file, and all of each by hash:
#   docker build --target agent -t rte-agent .          the DaemonSet's; no NumPy, nothing that only the scheduler needs
#   docker build --target scheduler -t rte-scheduler .  the scheduler's, and every other command
# Reproducible: base image by argument (pin it by digest), packages by hash, byte code by content, fixed times.
# Several architectures: docker buildx build --platform linux/amd64,linux/arm64 --target agent ...
# Without a network: --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels, with a folder of wheels mounted there.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS wheel
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1 \
    PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=1767225600
WORKDIR /src
# The build back end, by hash too; it is no part of the images, what it makes is.
COPY requirements-build.txt ./
RUN python -m pip install --no-compile --require-hashes --only-binary :all: -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY rte ./rte
# rte/sim links to it.
COPY manifests/crd ./manifests/crd
RUN python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /tmp/wheel .
COPY .ci/sbom .ci/runtime /usr/local/bin/
# install REQUIREMENTS: a virtual environment of these packages and rte, the same bytes each time, and what it is made of.
# Byte code lies in a tree of its own, Python's library included (base images have none that fits: a second of CPU at each
# start), and is taken whatever time its source has. It has no docstrings and no columns of tracebacks (PYTHONOPTIMIZE,
# PYTHONNODEBUGRANGES): 2.5 MiB of an agent's memory.
RUN printf '%s\n' '#!/bin/sh' 'set -e' '[ -d /opt/rte ] || python -m venv --without-pip /opt/rte' \
    'python -m pip --python /opt/rte/bin/python install --no-compile --require-hashes --only-binary :all: -r "$1"' \
    'python -m pip --python /opt/rte/bin/python install --no-compile --no-deps --no-index /tmp/wheel/*.whl' \
    'find /opt/rte -name tests -type d -prune -exec rm -rf {} +' \
    'library=$(python -c "import sysconfig; print(sysconfig.get_paths()[\"stdlib\"])")' \
    'find /opt/rte/lib -name "*.py" -newermt @$SOURCE_DATE_EPOCH > /tmp/new' \
    '[ -d /opt/rte/bytecode ] || echo "$library" >> /tmp/new' \
    'PYTHONPYCACHEPREFIX=/opt/rte/bytecode PYTHONNODEBUGRANGES=1 /opt/rte/bin/python -m compileall -q -j 0 -o 2 \' \
    '    --invalidation-mode unchecked-hash -x "$library/(test|idlelib|tkinter|lib2to3|ensurepip|.*-packages)/" -i /tmp/new' \
    > /usr/local/bin/install-rte && chmod +x /usr/local/bin/install-rte
# assemble: /image is that environment, what it needs of the base, and the list of both.
RUN printf '%s\n' '#!/bin/sh' 'set -e' 'python /usr/local/bin/runtime /image /opt/rte' \
    'DPKG_STATUS=/image/var/lib/dpkg/status /opt/rte/bin/python /usr/local/bin/sbom > /image/opt/rte/sbom.cdx.json' \
    'find /image -newermt @$SOURCE_DATE_EPOCH -exec touch -h -d @$SOURCE_DATE_EPOCH {} +' \
    > /usr/local/bin/assemble && chmod +x /usr/local/bin/assemble

FROM wheel AS agent-packages
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements-agent.txt ./
RUN install-rte requirements-agent.txt

FROM agent-packages AS scheduler-packages
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY requirements.txt ./
RUN install-rte requirements.txt

# An agent simulates nothing.
FROM agent-packages AS agent-tree
RUN find /opt/rte -path '*/rte/sim' -type d -prune -exec rm -rf {} + && assemble

FROM scheduler-packages AS scheduler-tree
RUN assemble

# No shell, no package manager: what nobody calls needs no update.
FROM scratch AS agent
LABEL org.opencontainers.image.title="rte agent" org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/rte/bin:/usr/local/bin:/usr/bin:/bin PYTHONPYCACHEPREFIX=/opt/rte/bytecode PYTHONDONTWRITEBYTECODE=1 PYTHONOPTIMIZE=2 \
    PYTHONNODEBUGRANGES=1 PYTHONUNBUFFERED=1
COPY --from=agent-tree /image /
# The DaemonSet sets uid 0, which the kubelet's files ask for.
USER 65532:65532
ENTRYPOINT ["rte"]
CMD ["run"]

FROM scratch AS scheduler
LABEL org.opencontainers.image.title="rte scheduler" org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/rte/bin:/usr/local/bin:/usr/bin:/bin PYTHONPYCACHEPREFIX=/opt/rte/bytecode PYTHONDONTWRITEBYTECODE=1 PYTHONOPTIMIZE=2 \
    PYTHONNODEBUGRANGES=1 PYTHONUNBUFFERED=1
COPY --from=scheduler-tree /image /
USER 65532:65532
ENTRYPOINT ["rte"]
CMD ["scheduler"]
