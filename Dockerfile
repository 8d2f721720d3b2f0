# docker build -t kinprint .    Then, with models of the working folder:  docker run --rm -v "$PWD:/models" kinprint compare a b
# All that is installed is held against digests; the image has neither the programs that build nor a compiler, and runs as nobody special.
FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements/locked requirements/locked
COPY pyproject.toml README.md LICENSE ./
COPY tools/demo_models.py tools/demo_models.py
COPY demo/models demo/models
COPY src src
RUN python -m venv --without-pip /opt/builder \
 && python -m pip --python /opt/builder install --no-cache-dir --require-hashes -r requirements/locked/build.txt \
 && /opt/builder/bin/python -m hatchling build -t wheel -d dist
RUN python -m venv --without-pip /opt/kinprint \
 && python -m pip --python /opt/kinprint install --no-cache-dir --require-hashes -r requirements/locked/core.txt \
 && python -m pip --python /opt/kinprint install --no-cache-dir --no-deps --no-index dist/*.whl

FROM python:3.11-slim
COPY --from=build /opt/kinprint /opt/kinprint
RUN useradd --uid 10001 --create-home kinprint
USER kinprint
ENV PATH=/opt/kinprint/bin:$PATH
WORKDIR /models
ENTRYPOINT ["kinprint"]
CMD ["--help"]
