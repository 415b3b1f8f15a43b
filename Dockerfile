# Agent and scheduler in one image: docker build -t rte .
# Reproducible: base image by argument (pin it by digest), packages by hash, no byte code, fixed times.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 SOURCE_DATE_EPOCH=1767225600
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv --without-pip /opt/rte \
 && python -m pip --python /opt/rte/bin/python install --require-hashes --only-binary :all: -r requirements.txt
# The build back end, by hash too (pip-compile --only-build-deps); it is no part of the image, what it makes is.
COPY requirements-build.txt ./
RUN python -m pip install --require-hashes --only-binary :all: -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY rte ./rte
# rte/sim links to it.
COPY manifests/crd ./manifests/crd
RUN python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /tmp/wheel . \
 && python -m pip --python /opt/rte/bin/python install --no-deps --no-index /tmp/wheel/*.whl \
 && find /opt/rte -name tests -type d -prune -exec rm -rf {} + \
 && find /opt/rte -newermt @${SOURCE_DATE_EPOCH} -exec touch -h -d @${SOURCE_DATE_EPOCH} {} +

FROM ${BASE}
ENV PATH=/opt/rte/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/rte /opt/rte
# The scheduler needs no more; the agent's DaemonSet sets uid 0, which the kubelet's files ask for.
USER 65532:65532
ENTRYPOINT ["rte"]
CMD ["run"]
