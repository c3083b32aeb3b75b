{{- /* Names of the entries of the old charts' workload.envs, which people set by number. */}}
{{- define "a4.oldEnvNames" -}}
SSH_PUBLIC_KEY SLEEP_INFINITY HF_TOKEN NVTE_FWD_LAYERNORM_SM_MARGIN NVTE_BWD_LAYERNORM_SM_MARGIN GLOO_SOCKET_IFNAME TORCH_DISTRIBUTED_TRACING PAI_WORKSPACE_ROOT
{{- end -}}

{{- /* Variables that are the chart's to set, and what to use in place of setting them: {NAME: hint}. */}}
{{- define "a4.contractNames" -}}
NNODES: workload.gpus
GPUS_PER_NODE: workload.gpus
WORLD_SIZE: workload.gpus
JOB_COMPLETION_INDEX: nothing, it follows from the pod
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

{{- /* The user's own variables, each once, what is said later in place of what is said before:
     {entries: [{name, value or valueFrom}], values: {name: value}, problems}. */}}
{{- define "a4.ownEnv" -}}
{{- $problems := list -}}
{{- $given := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- range $name, $value := $workload.env | default dict -}}
  {{- if not (kindIs "invalid" $value) -}}
    {{- $given = append $given (dict "name" $name "value" (include "a4.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- range (include "a4.items" ((.Values.network | default dict).ncclSettings | default list) | fromJson).items -}}
  {{- $name := .item.name | default "" -}}
  {{- if and (not $name) (lt (int .at) 2) -}}
    {{- $name = index (list "NCCL_DEBUG" "NVTE_UB_SOCKET_IFNAME") (int .at) -}}
  {{- end -}}
  {{- if $name -}}
    {{- $given = append $given (dict "name" $name "value" (include "a4.text" .item.value)) -}}
  {{- else -}}
    {{- $problems = append $problems (printf "network.ncclSettings[%d] has no name: write {name: NCCL_…, value: …}" (int .at)) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $from := $workload.envFromSecrets | default dict -}}
  {{- if $from -}}
    {{- $given = append $given (dict "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $from.secret "key" (include "a4.text" $from.key)))) -}}
  {{- end -}}
{{- end -}}
{{- $oldNames := splitList " " (include "a4.oldEnvNames" .) -}}
{{- range (include "a4.items" ($workload.envs | default list) | fromJson).items -}}
  {{- $at := int .at -}}
  {{- $name := .item.name | default "" -}}
  {{- if and (not $name) (lt $at (len $oldNames)) -}}
    {{- $name = index $oldNames $at -}}
  {{- end -}}
  {{- if not $name -}}
    {{- $problems = append $problems (printf "workload.envs[%d] has no name: set workload.envs[%d].name too, or better workload.env.NAME=value" $at $at) -}}
  {{- else if .item.valueFrom -}}
    {{- $given = append $given (dict "name" $name "valueFrom" .item.valueFrom) -}}
  {{- else -}}
    {{- $given = append $given (dict "name" $name "value" (include "a4.text" .item.value)) -}}
  {{- end -}}
{{- end -}}
{{- $contract := include "a4.contractNames" . | fromYaml -}}
{{- $last := dict -}}
{{- range $given -}}
  {{- if hasKey $contract .name -}}
    {{- $problems = append $problems (printf "%s is the chart's to set: use %s" .name (get $contract .name)) -}}
  {{- end -}}
  {{- if and .valueFrom (has .name (list "SLEEP_INFINITY" "PAI_WORKSPACE_ROOT" "RUN_DEEPEP_TEST" "A4_RUN_DIR")) -}}
    {{- $problems = append $problems (printf "%s has a valueFrom: write its value, which the chart must know" .name) -}}
  {{- end -}}
  {{- $_ := set $last .name . -}}
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
{{- dict "entries" $entries "values" $values "problems" (uniq $problems) | toJson -}}
{{- end -}}

{{- /* Variables that belong into the Secret: {name: value}. */}}
{{- define "a4.secretEnv" -}}
{{- $secret := dict -}}
{{- range $name, $value := (.Values.workload | default dict).defaultEnv | default dict -}}
  {{- $_ := set $secret $name (include "a4.text" $value) -}}
{{- end -}}
{{- range (include "a4.ownEnv" . | fromJson).entries -}}
  {{- $_ := set $secret .name (.value | default "") -}}
{{- end -}}
{{- range $name, $value := $secret -}}
  {{- if not (and $value (include "a4.isSecret" $name)) }}{{ $_ := unset $secret $name }}{{ end -}}
{{- end -}}
{{- $secret | toJson -}}
{{- end -}}
