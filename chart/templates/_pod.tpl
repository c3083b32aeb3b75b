{{- /* What fills /usr/local/gib and /dev/shm before the workload's container starts. From there its agent places what the image
     does not have itself. */}}
{{- define "a4.gibInstaller" -}}
set -eu
end() { echo "gIB installer: $*" >&2; exit 1; }
/scripts/container_entry.sh install --install-nccl || end "container_entry.sh has ended with $?"
[ -d /var/lib/gib/lib64 ] || end "it has left no /var/lib/gib/lib64: is this image an installer of gIB?"
[ -e /var/lib/gib/scripts/set_nccl_env.sh ] || end "it has left no /var/lib/gib/scripts/set_nccl_env.sh, which says how NCCL is to be used"
cp -R /var/lib/gib/. /target/usr/local/gib || end "/usr/local/gib cannot be filled"
for name in scripts diagnostic third_party; do
  [ ! -d "/$name" ] || cp -R "/$name" /target/dev/shm || end "/dev/shm cannot be filled from /$name"
done
{{- end -}}

{{- /* Runs its arguments, TCPX's daemon, for as long as the workload's container lives, and ends 0 then. That container keeps a
     FIFO open: the kernel closes it, however the container ends. */}}
{{- define "a4.daemonScript" -}}
alive=/run/workload/alive
# A signal that reaches the daemon's process while it is still a copy of this shell is lost: hence again.
end() { while kill "$daemon" 2>/dev/null; do sleep 2; done; }
# PID 1 is not told of a signal for which it has no trap yet.
told=
trap 'told=1' TERM INT
"$@" & daemon=$!
trap 'end &' TERM INT
[ -z "$told" ] || end &
{
  until [ -p "$alive" ]; do sleep 1; done
  # Opened for both first: opening one end of a FIFO waits for the other, which may be gone already.
  exec 8<>"$alive" 7<"$alive" 8>&-
  read -r line <&7
  : >"$alive.over"
  end
} & watch=$!
# A trap interrupts `wait`, and the daemon needs its time.
while wait "$daemon"; code=$?; kill -0 "$daemon" 2>/dev/null; do :; done
kill "$watch" 2>/dev/null
[ -e "$alive.over" ] || exit "$code"
{{- end -}}

{{- /* The first words of a container's command; for an image without the agent they make it one that has it. */}}
{{- define "a4.startsAgent" -}}
{{- if .Values.workload.agentImage -}}
- /opt/a4-agent/bin/with-agent
{{- else -}}
- tini
- --
{{- end }}
- a4-agent
- run
{{- end -}}

{{- define "a4.agentMount" -}}
{{- if .Values.workload.agentImage -}}
- {name: a4-agent, mountPath: /opt/a4-agent}
{{- end -}}
{{- end -}}

{{- define "a4.agentVolume" -}}
{{- if .Values.workload.agentImage -}}
- {name: a4-agent, emptyDir: {}}
{{- end -}}
{{- end -}}

{{- /* Brings the agent into a pod whose image does not have it. */}}
{{- define "a4.agentContainer" -}}
{{- with .Values.workload.agentImage -}}
- name: a4-agent
  image: {{ . | quote }}
  {{- with $.Values.workload.imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/usr/local/src/a4-agent/give-agent.sh, /target]
  {{- with include "a4.initSecurity" $ }}
  {{- . | nindent 2 }}
  {{- end }}
  volumeMounts:
    - {name: a4-agent, mountPath: /target}
{{- end -}}
{{- end -}}

{{- /* Of the chart's own init containers, but for TCPX's daemon, which needs more. */}}
{{- define "a4.initSecurity" -}}
{{- with (include "a4.whole" (.Values.initContainerSecurityContext | default dict) | fromJson).is -}}
securityContext: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "a4.tcpxContainer" -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $tcpx := .Values.network.tcpx -}}
{{- $native := $network.native -}}
- name: tcpx-daemon
  image: {{ $tcpx.daemonImage | quote }}
  {{- if $native }}
  restartPolicy: Always
  {{- end }}
  command:
    {{- if not $native }}
    - sh
    - -c
    - | {{- include "a4.daemonScript" . | nindent 6 }}
    - sh
    {{- end }}
    - /tcpgpudmarxd/build/app/tcpgpudmarxd
    - --gpu_nic_preset
    - a3vm
    - --gpu_shmem_type
    - fd
    - --uds_path
    - /run/tcpx
    - --setup_param
    - "--verbose 128 2 0 "
  env:
    - {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}
  securityContext:
    {{- if $network.host }}
    privileged: true
    {{- else }}
    capabilities: {add: [NET_ADMIN]}
    {{- end }}
  volumeMounts:
    - {name: tcpx-libraries, mountPath: /usr/local/nvidia/lib64}
    - {name: tcpx-socket, mountPath: /run/tcpx}
    {{- if not $network.host }}
    - {name: host-sys, mountPath: /hostsysfs}
    - {name: host-proc-sys, mountPath: /hostprocsysfs}
    {{- end }}
    {{- if not $native }}
    - {name: workload-alive, mountPath: /run/workload}
    {{- end }}
{{- end -}}

{{- define "a4.workloadContainer" -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $task := include "a4.task" . | fromJson -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $plainSidecar := and $network.tcpx (not $network.native) -}}
{{- $runDir := include "a4.runDir" . -}}
- name: workload
  image: {{ .Values.workload.image | quote }}
  {{- with .Values.workload.imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command:
    {{- if $plainSidecar }}
    # Until this container ends, tini holds the FIFO that the daemon's container watches.
    - sh
    - -c
    - mkfifo -m 600 /run/workload/new && exec 9<>/run/workload/new && mv /run/workload/new /run/workload/alive && exec "$@"
    - sh
    {{- end }}
    {{- include "a4.startsAgent" . | nindent 4 }}
  {{- with (include "a4.arguments" . | fromJson).words }}
  args: {{- toYaml (prepend . "--") | nindent 4 }}
  {{- end }}
  env: {{- include "a4.env" . | nindent 4 }}
  ports:
    {{- if gt (int $job.nodes) 1 }}
    - {name: ssh, containerPort: {{ int $network.sshPort }}}
    {{- end }}
    - {name: rendezvous, containerPort: {{ int $network.masterPort }}}
    {{- with (include "a4.metrics" . | fromJson).port }}
    - {name: a4-metrics, containerPort: {{ . }}}
    {{- end }}
  securityContext:
    {{- if not (kindIs "invalid" .Values.workload.securityContext) }}
    {{- (include "a4.whole" .Values.workload.securityContext | fromJson).is | toYaml | nindent 4 }}
    {{- else if $network.host }}
    privileged: true
    {{- else }}
    capabilities: {add: [IPC_LOCK]}
    {{- end }}
  resources: {{- include "a4.resources" . | nindent 4 }}
  startupProbe:
    exec: {command: [test, -e, {{ printf "%s/alive" $runDir | quote }}]}
    periodSeconds: 2
    failureThreshold: 150
  livenessProbe:
    # The agent's main loop touches the file every 5 s.
    exec: {command: [sh, -c, {{ printf "test $(( $(date +%%s) - $(stat -c %%Y %s/alive) )) -lt 120" $runDir | quote }}]}
    periodSeconds: 30
    timeoutSeconds: 20
    failureThreshold: 3
  {{- if gt (int $job.nodes) 1 }}
  readinessProbe:
    tcpSocket: {port: ssh}
    periodSeconds: 15
  {{- end }}
  volumeMounts:
    - {name: job-secret, mountPath: /etc/a4-agent/secret, readOnly: true}
    - {name: shared-memory, mountPath: /dev/shm}
    {{- with include "a4.agentMount" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $network.gib }}
    - {name: gib, mountPath: /usr/local/gib}
    {{- end }}
    {{- if $network.tcpx }}
    - {name: tcpx-socket, mountPath: /run/tcpx}
    - {name: tcpx-libraries, mountPath: /usr/local/nvidia/lib64}
    {{- end }}
    {{- if $plainSidecar }}
    - {name: workload-alive, mountPath: /run/workload}
    {{- end }}
    {{- with $task.script }}
    - {name: script, mountPath: {{ .path }}, readOnly: true}
    {{- end }}
    {{- if .Values.workload_config }}
    - {name: configuration, mountPath: {{ include "a4.configPath" . | quote }}, readOnly: true}
    {{- end }}
    {{- with $storage.mounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* What the user asks for, else a share of the node by the GPUs, and these, which are workload.gpus alone. Not with Kueue: a
     ClusterQueue admits nothing that it has no quota for, and many have one for GPUs alone. */}}
{{- define "a4.resources" -}}
{{- $own := (include "a4.whole" (.Values.workload.resources | default dict) | fromJson).is -}}
{{- $requests := $own.requests -}}
{{- if not (or $requests $own.limits (include "a4.text" .Values.queue)) -}}
  {{- $gpus := (include "a4.job" . | fromJson).gpusPerNode -}}
  {{- $requests = dict "cpu" (mul 4 $gpus) "memory" (printf "%dGi" (mul 32 $gpus)) -}}
{{- end -}}
{{- with include "a4.texts" (list (omit ($requests | default dict) "nvidia.com/gpu")) -}}
requests: {{- . | nindent 2 }}
{{ end -}}
limits: {{- include "a4.texts" (list (omit ($own.limits | default dict) "nvidia.com/gpu")) | trim | nindent 2 }}
  nvidia.com/gpu: {{ int (include "a4.job" . | fromJson).gpusPerNode }}
{{- if (include "a4.network" . | fromJson).claim }}
claims: [{name: rdma}]
{{- end }}
{{- end -}}

{{- define "a4.volumes" -}}
{{- $job := include "a4.job" . | fromJson -}}
{{- $task := include "a4.task" . | fromJson -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $network := include "a4.network" . | fromJson -}}
- name: job-secret
  secret:
    secretName: {{ include "a4.secretName" . | quote }}
    defaultMode: 0400
    items: [{key: job-secret, path: job-secret}]
- name: shared-memory
  emptyDir: {medium: Memory{{ with include "a4.text" (.Values.volumes | default dict).sharedMemory }}, sizeLimit: {{ . | quote }}{{ end }}}
{{- with include "a4.agentVolume" . }}
{{ . }}
{{- end }}
{{- if $network.gib }}
- {name: gib, emptyDir: {}}
{{- end }}
{{- if $network.tcpx }}
- {name: tcpx-socket, emptyDir: {}}
- {name: tcpx-libraries, hostPath: {path: {{ .Values.network.tcpx.librariesPath | default "/home/kubernetes/bin/nvidia/lib64" | quote }}, type: Directory}}
{{- if not $network.host }}
- {name: host-sys, hostPath: {path: /sys, type: Directory}}
- {name: host-proc-sys, hostPath: {path: /proc/sys, type: Directory}}
{{- end }}
{{- if not $network.native }}
- {name: workload-alive, emptyDir: {}}
{{- end }}
{{- end }}
{{- if $task.script }}
- name: script
  configMap: {name: {{ $job.name }}-scripts, defaultMode: 0755}
{{- end }}
{{- if .Values.workload_config }}
- name: configuration
  configMap:
    name: {{ $job.name }}-config
    items: [{key: workload-configuration, path: {{ .Values.workload.configFile | default "workload-configuration" | quote }}}]
{{- end }}
{{- with $storage.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The network of every pod of the release. */}}
{{- define "a4.podNetwork" -}}
{{- $host := (include "a4.network" . | fromJson).host -}}
{{- if $host }}hostNetwork: true
{{ end -}}
dnsPolicy: {{ .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "ClusterFirst" $host) }}
{{- with (include "a4.whole" (.Values.dnsConfig | default dict) | fromJson).is }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}
