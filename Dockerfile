FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY app app
COPY migrations migrations
RUN python -m venv /opt/fairlane \
 && /opt/fairlane/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/fairlane/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
# A number that whoever runs the image can name and check.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/fairlane --shell /usr/sbin/nologin fairlane
COPY --from=build /opt/fairlane /opt/fairlane
USER 10001:10001
WORKDIR /var/lib/fairlane
# Inside the container every address is its own; what the outside reaches is decided where it is published.
ENV PATH=/opt/fairlane/bin:$PATH FAIRLANE_HOST=0.0.0.0 PYTHONUNBUFFERED=1
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health/ready', timeout=2)"]
# The process itself, without a shell before it: the signal that asks it to end reaches it.
ENTRYPOINT ["fairlane"]
CMD ["serve"]
