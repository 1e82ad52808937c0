# An image with lmtool and torch's CPU build:
#   docker build -t lmtool .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" -v lmtool-cache:/cache lmtool train model=ngram
FROM python:3.13-slim
# Compiled loops, downloads and matplotlib's fonts; any user may write here.
ENV XDG_CACHE_HOME=/cache MPLCONFIGDIR=/cache/matplotlib
RUN mkdir -m 1777 /cache
COPY pyproject.toml README.md LICENSE /src/
COPY scripts/constraints.txt /src/scripts/
COPY conf /src/conf
COPY lmtool /src/lmtool
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c /src/scripts/constraints.txt "/src[download,plots]" \
    && rm -r /src
WORKDIR /work
ENTRYPOINT ["lmtool"]
CMD ["--help"]
