{{- /* Where each distribution keeps the kubelet's files; the kustomize tree says the same in manifests/layouts. */}}
{{- define "rte.layout" -}}
{{- $known := dict
  "kubeadm" (dict "root" "/var/lib/kubelet" "pki" "certificate")
  "talos" (dict "root" "/var/lib/kubelet" "pki" "certificate")
  "gke" (dict "root" "/var/lib/kubelet" "pki" "covered" "quota" true)
  "other" (dict "root" "/var/lib/kubelet" "pki" "covered")
  "openshift" (dict "root" "/var/lib/kubelet" "pki" "ca" "selinux" true "scc" true)
  "k3s" (dict "root" "/var/lib/kubelet" "pki" "absent")
  "rke2" (dict "root" "/var/lib/kubelet" "pki" "absent")
  "microk8s" (dict "root" "/var/snap/microk8s/common/var/lib/kubelet" "pki" "absent")
  "k0s" (dict "root" "/var/lib/k0s/kubelet" "pki" "covered" "devicePlugins" "/var/lib/kubelet/device-plugins")
-}}
{{- get $known .Values.layout | toYaml -}}
{{- end }}

{{- define "rte.leaseNamespace" -}}
{{ .Values.leaseNamespace | default (printf "%s-agents" .Release.Name) }}
{{- end }}

{{- define "rte.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The rest of a probe's httpGet where health is served over TLS. */}}
{{- define "rte.scheme" -}}
{{- if .Values.metricsTLS.enabled }}, scheme: HTTPS{{ end -}}
{{- end }}
