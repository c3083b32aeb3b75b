{{- /* Names of the entries of the old charts' lists, which people set by number. */}}
{{- define "a4.oldEnvNames" -}}
SSH_PUBLIC_KEY SLEEP_INFINITY HF_TOKEN NVTE_FWD_LAYERNORM_SM_MARGIN NVTE_BWD_LAYERNORM_SM_MARGIN GLOO_SOCKET_IFNAME TORCH_DISTRIBUTED_TRACING PAI_WORKSPACE_ROOT
{{- end -}}
{{- define "a4.oldNcclNames" -}}
NCCL_DEBUG NVTE_UB_SOCKET_IFNAME
{{- end -}}

{{- /* Variables that are the chart's to set, and what to use in place of setting them: {NAME: hint}. */}}
{{- define "a4.contractNames" -}}
NNODES: workload.gpus
GPUS_PER_NODE: workload.gpus
WORLD_SIZE: workload.gpus
JOB_COMPLETION_INDEX: nothing, it follows from the pod
JOB_ID: the release's name
JOB_IDENTIFIER: the release's name
JOB_UUID: nothing, it follows from the Job
JOB_ORCHESTRATOR: nothing, it is gke
HOSTNAME_PREFIX: the release's name
DOMAIN_NAME: the release's name and namespace, and network.clusterDomain
RANK_0_FQDN: the release's name
MASTER_ADDR: the release's name
MASTER_PORT: network.masterPort
A4_JOBSET_UID: nothing, it follows from the JobSet
A4_RESTART_ATTEMPT: nothing, it follows from the JobSet
A4_JOB_RESTART_ATTEMPT: nothing, it follows from the JobSet
A4_GRACE_SECONDS: workload.terminationGracePeriodSeconds
A4_PROFILE: network.profile
A4_SECRET_FILE: secret.name
A4_SSH_PORT: network.sshPort
A4_USER_ENV: nothing, every variable in workload.env and workload.envs is in it
A4_WORKLOAD: workload.run
{{- end -}}

{{- /* Is a variable secret by its name? The rule of agent/decide/masking.py. */}}
{{- define "a4.isSecret" -}}
{{- if and (regexMatch "(?i)token|secret|passw|key|cred" .) (not (regexMatch "(?i)PUBLIC_KEY|_FILE$|_PATH$|_DIR$" .)) }}true{{ end -}}
{{- end -}}

{{- /* The entries of one list of {name, value or valueFrom}: {entries, problems}. Takes {list, key, names}: `names` are those of
     entries that have none. */}}
{{- define "a4.listedEnv" -}}
{{- $problems := list -}}
{{- $entries := list -}}
{{- $key := .key -}}
{{- $names := .names -}}
{{- range (include "a4.items" (.list | default list) | fromJson).items -}}
  {{- $at := int .at -}}
  {{- $name := .item.name | default "" -}}
  {{- if and (not $name) (lt $at (len $names)) -}}
    {{- $name = index $names $at -}}
  {{- end -}}
  {{- if not $name -}}
    {{- $problems = append $problems (printf "%s[%d] has no name: set %s[%d].name too, or better workload.env.NAME=value" $key $at $key $at) -}}
  {{- else if and .item.valueFrom (include "a4.text" .item.value) -}}
    {{- $problems = append $problems (printf "%s[%d], %s, has a value and a valueFrom: drop one of them" $key $at $name) -}}
  {{- else if .item.valueFrom -}}
    {{- $entries = append $entries (dict "name" $name "valueFrom" .item.valueFrom) -}}
  {{- else -}}
    {{- $entries = append $entries (dict "name" $name "value" (include "a4.text" .item.value)) -}}
  {{- end -}}
{{- end -}}
{{- dict "entries" $entries "problems" $problems | toJson -}}
{{- end -}}

{{- /* Everything that the values say of variables, each once, what is said later in place of what is said before:
     {entries: [{name, value or valueFrom, own}], values: {name: value}, problems}; `own` are the user's, all but defaultEnv. */}}
{{- define "a4.variables" -}}
{{- $problems := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $network := .Values.network | default dict -}}
{{- $default := list -}}
{{- range $name, $value := $workload.defaultEnv | default dict -}}
  {{- if not (kindIs "invalid" $value) -}}
    {{- $default = append $default (dict "name" $name "value" (include "a4.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- $own := list -}}
{{- range $name, $value := $workload.env | default dict -}}
  {{- if not (kindIs "invalid" $value) -}}
    {{- $own = append $own (dict "name" $name "value" (include "a4.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- $nccl := include "a4.listedEnv" (dict "list" $network.ncclSettings "key" "network.ncclSettings" "names" (splitList " " (include "a4.oldNcclNames" .))) | fromJson -}}
{{- $own = concat $own $nccl.entries | default list -}}
{{- range $name, $from := $workload.envFromSecrets | default dict -}}
  {{- if $from -}}
    {{- if not (and $from.secret (include "a4.text" $from.key)) -}}
      {{- $problems = append $problems (printf "workload.envFromSecrets.%s needs both secret, the name of a Secret, and key, the key in it" $name) -}}
    {{- end -}}
    {{- $own = append $own (dict "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $from.secret "key" (include "a4.text" $from.key)))) -}}
  {{- end -}}
{{- end -}}
{{- $listed := include "a4.listedEnv" (dict "list" $workload.envs "key" "workload.envs" "names" (splitList " " (include "a4.oldEnvNames" .))) | fromJson -}}
{{- $own = concat $own $listed.entries | default list -}}
{{- $problems = concat $problems $nccl.problems $listed.problems | default list -}}

{{- $contract := include "a4.contractNames" . | fromYaml -}}
{{- $last := dict -}}
{{- range $default }}{{ $_ := set $last .name . }}{{ end -}}
{{- range $own }}{{ $_ := set $last .name (set . "own" true) }}{{ end -}}
{{- range $name, $entry := $last -}}
  {{- if hasKey $contract $name -}}
    {{- $problems = append $problems (printf "%s is the chart's to set: use %s" $name (get $contract $name)) -}}
  {{- end -}}
  {{- if and $entry.valueFrom (has $name (list "SLEEP_INFINITY" "PAI_WORKSPACE_ROOT" "RUN_DEEPEP_TEST" "A4_RUN_DIR")) -}}
    {{- $problems = append $problems (printf "%s has a valueFrom: write its value, which the chart must know" $name) -}}
  {{- end -}}
{{- end -}}
{{- /* The old values files preset these with nothing. */}}
{{- range list "SSH_PUBLIC_KEY" "SLEEP_INFINITY" "HF_TOKEN" "PAI_WORKSPACE_ROOT" -}}
  {{- $entry := get $last . | default dict -}}
  {{- if not (or $entry.valueFrom (trim ($entry.value | default ""))) -}}
    {{- $_ := unset $last . -}}
  {{- end -}}
{{- end -}}
{{- $entries := list -}}
{{- $values := dict -}}
{{- range $name := keys $last | sortAlpha -}}
  {{- $entries = append $entries (get $last $name) -}}
  {{- $_ := set $values $name (get $last $name | dig "value" "") -}}
{{- end -}}
{{- with get $values "A4_RUN_DIR" -}}
  {{- if not (regexMatch "^(/[A-Za-z0-9._-]+)+$" .) -}}
    {{- $problems = append $problems (printf "A4_RUN_DIR=%s: write an absolute path of letters, digits, '.', '_' and '-'" .) -}}
  {{- end -}}
{{- end -}}
{{- dict "entries" $entries "values" $values "problems" (uniq $problems) | toJson -}}
{{- end -}}

{{- /* Is the value of this entry kept in the Secret? */}}
{{- define "a4.keptSecret" -}}
{{- if .value }}{{ include "a4.isSecret" .name }}{{ end -}}
{{- end -}}
