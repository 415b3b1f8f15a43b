from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NHDStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NHD_STATUS_OK: _ClassVar[NHDStatus]
    NHD_STATUS_ERR: _ClassVar[NHDStatus]
NHD_STATUS_OK: NHDStatus
NHD_STATUS_ERR: NHDStatus

class Empty(_message.Message):
    __slots__ = ("nothing",)
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    nothing: int
    def __init__(self, nothing: _Optional[int] = ...) -> None: ...

class NICInfoBrief(_message.Message):
    __slots__ = ("used_rx", "used_tx")
    USED_RX_FIELD_NUMBER: _ClassVar[int]
    USED_TX_FIELD_NUMBER: _ClassVar[int]
    used_rx: int
    used_tx: int
    def __init__(self, used_rx: _Optional[int] = ..., used_tx: _Optional[int] = ...) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("name", "free_cpus", "used_cpus", "free_gpus", "used_gpus", "free_hugepages", "used_hugepages", "total_pods", "nic_info", "active")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FREE_CPUS_FIELD_NUMBER: _ClassVar[int]
    USED_CPUS_FIELD_NUMBER: _ClassVar[int]
    FREE_GPUS_FIELD_NUMBER: _ClassVar[int]
    USED_GPUS_FIELD_NUMBER: _ClassVar[int]
    FREE_HUGEPAGES_FIELD_NUMBER: _ClassVar[int]
    USED_HUGEPAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PODS_FIELD_NUMBER: _ClassVar[int]
    NIC_INFO_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    free_cpus: int
    used_cpus: int
    free_gpus: int
    used_gpus: int
    free_hugepages: int
    used_hugepages: int
    total_pods: int
    nic_info: _containers.RepeatedCompositeFieldContainer[NICInfoBrief]
    active: bool
    def __init__(self, name: _Optional[str] = ..., free_cpus: _Optional[int] = ..., used_cpus: _Optional[int] = ..., free_gpus: _Optional[int] = ..., used_gpus: _Optional[int] = ..., free_hugepages: _Optional[int] = ..., used_hugepages: _Optional[int] = ..., total_pods: _Optional[int] = ..., nic_info: _Optional[_Iterable[_Union[NICInfoBrief, _Mapping]]] = ..., active: _Optional[bool] = ...) -> None: ...

class NodeStats(_message.Message):
    __slots__ = ("status", "info")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    status: NHDStatus
    info: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, status: _Optional[_Union[NHDStatus, str]] = ..., info: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...

class SchedulerStats(_message.Message):
    __slots__ = ("status", "failed_schedule_count")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAILED_SCHEDULE_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: NHDStatus
    failed_schedule_count: int
    def __init__(self, status: _Optional[_Union[NHDStatus, str]] = ..., failed_schedule_count: _Optional[int] = ...) -> None: ...

class PodInfo(_message.Message):
    __slots__ = ("name", "node", "annotations", "namespace", "misc_cores", "proc_cores", "proc_helper_cores", "gpus", "nic_macs", "hugepages")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MISC_CORES_FIELD_NUMBER: _ClassVar[int]
    PROC_CORES_FIELD_NUMBER: _ClassVar[int]
    PROC_HELPER_CORES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NIC_MACS_FIELD_NUMBER: _ClassVar[int]
    HUGEPAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    node: str
    annotations: _containers.ScalarMap[str, str]
    namespace: str
    misc_cores: _containers.RepeatedScalarFieldContainer[int]
    proc_cores: _containers.RepeatedScalarFieldContainer[int]
    proc_helper_cores: _containers.RepeatedScalarFieldContainer[int]
    gpus: _containers.RepeatedScalarFieldContainer[int]
    nic_macs: _containers.RepeatedScalarFieldContainer[str]
    hugepages: int
    def __init__(self, name: _Optional[str] = ..., node: _Optional[str] = ..., annotations: _Optional[_Mapping[str, str]] = ..., namespace: _Optional[str] = ..., misc_cores: _Optional[_Iterable[int]] = ..., proc_cores: _Optional[_Iterable[int]] = ..., proc_helper_cores: _Optional[_Iterable[int]] = ..., gpus: _Optional[_Iterable[int]] = ..., nic_macs: _Optional[_Iterable[str]] = ..., hugepages: _Optional[int] = ...) -> None: ...

class PodStats(_message.Message):
    __slots__ = ("status", "info")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    status: NHDStatus
    info: _containers.RepeatedCompositeFieldContainer[PodInfo]
    def __init__(self, status: _Optional[_Union[NHDStatus, str]] = ..., info: _Optional[_Iterable[_Union[PodInfo, _Mapping]]] = ...) -> None: ...

class NodeReq(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DetailedNodeStats(_message.Message):
    __slots__ = ("status", "name", "podinfo")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PODINFO_FIELD_NUMBER: _ClassVar[int]
    status: NHDStatus
    name: str
    podinfo: _containers.RepeatedCompositeFieldContainer[PodInfo]
    def __init__(self, status: _Optional[_Union[NHDStatus, str]] = ..., name: _Optional[str] = ..., podinfo: _Optional[_Iterable[_Union[PodInfo, _Mapping]]] = ...) -> None: ...
