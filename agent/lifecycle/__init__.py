"""The life of a pod: form the cluster, run the workload, end with the truth."""
