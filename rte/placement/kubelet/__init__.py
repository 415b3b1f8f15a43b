"""What a kubelet's admission will answer: one module per manager, the rules by release."""
