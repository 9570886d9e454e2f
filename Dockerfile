# An image with the program alone, made by README's commands: docker build -t quintet . && docker run --rm quintet --version
FROM debian:12 AS build
WORKDIR /quintet
COPY . .
RUN scripts/quickstart
RUN cpack -G DEB --config build/CPackConfig.cmake -B build

FROM debian:12
WORKDIR /quintet
COPY --from=build /quintet/build/quintet_0.1.0_amd64.deb build/
RUN apt-get update && apt-get install -y ./build/quintet_0.1.0_amd64.deb
ENTRYPOINT ["quintet"]
