"""The container runtime's Node Resource Interface: containers are pinned as they are created."""
