"""The kubelet of every node of the test bed: pods that are bound to its nodes become processes on this machine."""
