# An image of the program alone, made by README's commands: docker build -t quintet . && docker run --rm quintet --version
# (docs/usage/install.md)
FROM debian:12 AS build
WORKDIR /quintet
# git: for the commit that the version names.
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev file git
COPY . .
# The few steps show that it trains.
RUN scripts/quickstart --steps=20
RUN cpack -G DEB --config build/CPackConfig.cmake -B build

FROM debian:12
COPY --from=build /quintet/build/quintet_*.deb build/
RUN apt-get update && apt-get install -y --no-install-recommends ./build/quintet_*.deb && apt-get clean && rm -r build /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["quintet"]
