# The agent on top of an image: the last step of every image here, and of your own.
#
#     docker build --file docker/agent.Dockerfile --build-arg BASE=my-image --tag my-image-with-agent .
#
# BASE is Debian or Ubuntu (glibc, apt). Nothing in it changes but what docs/images.md lists.

ARG BASE=debian:12-slim

FROM ${BASE} AS agent
# Where pip finds a mirror or a certificate that this build needs. The stage is left behind, and this with it.
ARG PIP_CONFIG_FILE
COPY docker/steps/packages.sh docker/steps/agent.sh /tmp/steps/
COPY docker/constraints.txt /tmp/
COPY setup.cfg setup.py pyproject.toml README.md LICENSE /tmp/a4-agent/
COPY docs/result.schema.json /tmp/a4-agent/docs/
COPY bin /tmp/a4-agent/bin/
COPY env /tmp/a4-agent/env/
COPY entrypoints /tmp/a4-agent/entrypoints/
COPY agent /tmp/a4-agent/agent/
RUN /tmp/steps/agent.sh /tmp/a4-agent /tmp/constraints.txt
COPY docker/a4-entrypoint docker/with-agent /opt/a4-agent/bin/

FROM ${BASE}
# The programs before the agent: they change less often.
COPY docker/steps/packages.sh docker/steps/python-state.sh docker/steps/programs.sh /usr/local/src/a4-agent/
RUN /usr/local/src/a4-agent/programs.sh
COPY --from=agent /opt/a4-agent /opt/a4-agent
COPY docker/steps/shells.sh /usr/local/src/a4-agent/
RUN /usr/local/src/a4-agent/shells.sh
# Where the chart mounts buckets, file systems and local disks, and where the old charts had theirs.
RUN mkdir -p /artifacts /gcs /lustre /mnt /ssd /workload/launcher /workload/scripts /workload/configs /workload/task \
        /workspace/scripts /workspace/configs /workspace/logs
# tini passes signals on and collects orphans. The image's own entrypoint comes next, then the command.
ENTRYPOINT ["tini", "--", "/opt/a4-agent/bin/a4-entrypoint"]
CMD ["a4-agent", "run"]
