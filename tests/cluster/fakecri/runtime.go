package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Annotations of a pod that steer its containers. Each may be limited to one container by a suffix `.<name>`.
//
//	create-delay, start-delay, stop-delay   the call takes this long (Go duration); stop-delay is bounded by the
//	                                        grace period that the kubelet grants
//	fail-create, fail-start                 the call fails with this message
//	exit-after, exit-code                   the container ends by itself
//	sandbox-delay, fail-sandbox             for the pod as a whole
//	pull-delay, fail-pull                   likewise (the kubelet pulls only under imagePullPolicy: Always)
const annotationPrefix = "testbed.rte.dev/"

type container struct {
	status  *pb.ContainerStatus
	sandbox string
	run     plan
	timer   *time.Timer
}

type sandbox struct {
	status *pb.PodSandboxStatus
	config *pb.PodSandboxConfig
}

// fakeRuntime implements the runtime and image services of CRI.
type fakeRuntime struct {
	pb.UnimplementedRuntimeServiceServer
	pb.UnimplementedImageServiceServer

	mu         sync.Mutex
	count      int
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

func newRuntime() *fakeRuntime {
	return &fakeRuntime{sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
}

// plan is what a container does once it is started.
type plan struct {
	ends  bool
	after time.Duration
	code  int32
}

// parsePlan reads a command of the words `sleep SECONDS`, `exit CODE`, `true`, `false`; anything else, and
// `sleep infinity`, runs until it is stopped.
func parsePlan(words []string) plan {
	var p plan
	for i := 0; i < len(words); i++ {
		operand := ""
		if i+1 < len(words) {
			operand = words[i+1]
		}
		switch words[i] {
		case "true":
			return plan{ends: true, after: p.after}
		case "false":
			return plan{ends: true, after: p.after, code: 1}
		case "exit":
			code, err := strconv.ParseInt(operand, 10, 32)
			if err != nil {
				return plan{}
			}
			return plan{ends: true, after: p.after, code: int32(code)}
		case "sleep":
			seconds, err := strconv.ParseFloat(operand, 64)
			if err != nil || seconds < 0 || seconds > 1e9 {
				return plan{}
			}
			p = plan{ends: true, after: p.after + time.Duration(seconds*float64(time.Second))}
			i++
		default:
			return p
		}
	}
	return p
}

func lookup(annotations map[string]string, key, name string) string {
	if value, ok := annotations[annotationPrefix+key+"."+name]; ok {
		return value
	}
	return annotations[annotationPrefix+key]
}

// hold waits as long as the annotation says, or until the caller gives up; an unreadable duration is the caller's error.
func hold(ctx context.Context, annotations map[string]string, key, name string) error {
	text := lookup(annotations, key, name)
	if text == "" {
		return nil
	}
	delay, err := time.ParseDuration(text)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "annotation %s%s: %v", annotationPrefix, key, err)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func refuse(annotations map[string]string, key, name string) error {
	if text := lookup(annotations, key, name); text != "" {
		return status.Error(codes.Unknown, text)
	}
	return nil
}

func missing(what, id string) error { return status.Errorf(codes.NotFound, "no %s %q", what, id) }

func now() int64 { return time.Now().UnixNano() }

func (r *fakeRuntime) nextID() string {
	r.count++
	return fmt.Sprintf("%064x", r.count)
}

func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (r *fakeRuntime) Version(context.Context, *pb.VersionRequest) (*pb.VersionResponse, error) {
	return &pb.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "2.1.0", RuntimeApiVersion: "v1"}, nil
}

func (r *fakeRuntime) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Status: &pb.RuntimeStatus{Conditions: []*pb.RuntimeCondition{
			{Type: pb.RuntimeReady, Status: true}, {Type: pb.NetworkReady, Status: true}}},
		RuntimeHandlers: []*pb.RuntimeHandler{{Features: &pb.RuntimeHandlerFeatures{}}},
	}, nil
}

func (r *fakeRuntime) RuntimeConfig(context.Context, *pb.RuntimeConfigRequest) (*pb.RuntimeConfigResponse, error) {
	return &pb.RuntimeConfigResponse{Linux: &pb.LinuxRuntimeConfiguration{CgroupDriver: pb.CgroupDriver_CGROUPFS}}, nil
}

func (r *fakeRuntime) UpdateRuntimeConfig(context.Context, *pb.UpdateRuntimeConfigRequest) (*pb.UpdateRuntimeConfigResponse, error) {
	return &pb.UpdateRuntimeConfigResponse{}, nil
}

func (r *fakeRuntime) RunPodSandbox(ctx context.Context, q *pb.RunPodSandboxRequest) (*pb.RunPodSandboxResponse, error) {
	c := q.Config
	if err := hold(ctx, c.Annotations, "sandbox-delay", ""); err != nil {
		return nil, err
	}
	if err := refuse(c.Annotations, "fail-sandbox", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextID()
	r.sandboxes[id] = &sandbox{config: c, status: &pb.PodSandboxStatus{
		Id: id, Metadata: c.Metadata, State: pb.PodSandboxState_SANDBOX_READY, CreatedAt: now(),
		Network: &pb.PodSandboxNetworkStatus{Ip: "127.0.0.1"},
		Linux:   &pb.LinuxPodSandboxStatus{Namespaces: &pb.Namespace{Options: c.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:  c.Labels, Annotations: c.Annotations}}
	return &pb.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *fakeRuntime) StopPodSandbox(_ context.Context, q *pb.StopPodSandboxRequest) (*pb.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[q.PodSandboxId]; s != nil {
		s.status.State = pb.PodSandboxState_SANDBOX_NOTREADY
		for _, c := range r.containers {
			if c.sandbox == q.PodSandboxId {
				c.finish(0)
			}
		}
	}
	return &pb.StopPodSandboxResponse{}, nil
}

func (r *fakeRuntime) RemovePodSandbox(_ context.Context, q *pb.RemovePodSandboxRequest) (*pb.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, q.PodSandboxId)
	for id, c := range r.containers {
		if c.sandbox == q.PodSandboxId {
			c.finish(0)
			delete(r.containers, id)
		}
	}
	return &pb.RemovePodSandboxResponse{}, nil
}

func (r *fakeRuntime) PodSandboxStatus(_ context.Context, q *pb.PodSandboxStatusRequest) (*pb.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[q.PodSandboxId]
	if s == nil {
		return nil, missing("sandbox", q.PodSandboxId)
	}
	return &pb.PodSandboxStatusResponse{Status: snapshotSandbox(s.status)}, nil
}

func (r *fakeRuntime) ListPodSandbox(_ context.Context, q *pb.ListPodSandboxRequest) (*pb.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := q.GetFilter()
	out := &pb.ListPodSandboxResponse{}
	for id, s := range r.sandboxes {
		if f.GetId() != "" && f.Id != id || f.GetState() != nil && f.State.State != s.status.State || !matches(s.status.Labels, f.GetLabelSelector()) {
			continue
		}
		out.Items = append(out.Items, &pb.PodSandbox{Id: id, Metadata: s.status.Metadata, State: s.status.State,
			CreatedAt: s.status.CreatedAt, Labels: s.status.Labels, Annotations: s.status.Annotations})
	}
	return out, nil
}

func (r *fakeRuntime) CreateContainer(ctx context.Context, q *pb.CreateContainerRequest) (*pb.CreateContainerResponse, error) {
	c := q.Config
	pod := q.SandboxConfig.GetAnnotations()
	name := c.Metadata.GetName()
	if err := hold(ctx, pod, "create-delay", name); err != nil {
		return nil, err
	}
	if err := refuse(pod, "fail-create", name); err != nil {
		return nil, err
	}
	run := parsePlan(append(append([]string{}, c.Command...), c.Args...))
	if text := lookup(pod, "exit-after", name); text != "" {
		after, err := time.ParseDuration(text)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "annotation %sexit-after: %v", annotationPrefix, err)
		}
		run = plan{ends: true, after: after, code: run.code}
	}
	if text := lookup(pod, "exit-code", name); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "annotation %sexit-code: %v", annotationPrefix, err)
		}
		run.code = int32(code)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[q.PodSandboxId] == nil {
		return nil, missing("sandbox", q.PodSandboxId)
	}
	id := r.nextID()
	r.containers[id] = &container{sandbox: q.PodSandboxId, run: run, status: &pb.ContainerStatus{
		Id: id, Metadata: c.Metadata, State: pb.ContainerState_CONTAINER_CREATED, CreatedAt: now(),
		Image: c.Image, ImageRef: c.Image.GetImage(), ImageId: c.Image.GetImage(), Labels: c.Labels, Annotations: c.Annotations,
		// The kubelet deletes this path with the container: it must lie in the pod's own log directory.
		LogPath:   filepath.Join(q.SandboxConfig.GetLogDirectory(), c.LogPath),
		Resources: &pb.ContainerResources{Linux: c.GetLinux().GetResources()}}}
	return &pb.CreateContainerResponse{ContainerId: id}, nil
}

func (r *fakeRuntime) StartContainer(ctx context.Context, q *pb.StartContainerRequest) (*pb.StartContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[q.ContainerId]
	var pod map[string]string
	if c != nil {
		if s := r.sandboxes[c.sandbox]; s != nil {
			pod = s.status.Annotations
		}
	}
	r.mu.Unlock()
	if c == nil {
		return nil, missing("container", q.ContainerId)
	}
	name := c.status.Metadata.GetName()
	if err := hold(ctx, pod, "start-delay", name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := refuse(pod, "fail-start", name); err != nil { // what containerd leaves behind a failed start
		c.status.State = pb.ContainerState_CONTAINER_EXITED
		c.status.StartedAt, c.status.FinishedAt = now(), now()
		c.status.ExitCode, c.status.Reason, c.status.Message = 128, "StartError", status.Convert(err).Message()
		return nil, err
	}
	if c.status.State != pb.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q was started before", q.ContainerId)
	}
	c.status.State = pb.ContainerState_CONTAINER_RUNNING
	c.status.StartedAt = now()
	if c.run.ends && c.run.after <= 0 {
		c.finish(c.run.code)
	} else if c.run.ends {
		c.timer = time.AfterFunc(c.run.after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			c.finish(c.run.code)
		})
	}
	return &pb.StartContainerResponse{}, nil
}

// finish ends a running container; the caller holds the lock.
func (c *container) finish(code int32) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.status.State != pb.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.status.State = pb.ContainerState_CONTAINER_EXITED
	c.status.FinishedAt = now()
	c.status.ExitCode = code
	c.status.Reason = "Completed"
	if code != 0 {
		c.status.Reason = "Error"
	}
}

func (r *fakeRuntime) StopContainer(ctx context.Context, q *pb.StopContainerRequest) (*pb.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[q.ContainerId]
	var pod map[string]string
	if c != nil && r.sandboxes[c.sandbox] != nil {
		pod = r.sandboxes[c.sandbox].status.Annotations
	}
	running := c != nil && c.status.State == pb.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if running && q.Timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(q.Timeout)*time.Second)
		defer cancel()
		// The end of the grace period is not an error: the container is killed then.
		if err := hold(bounded, pod, "stop-delay", c.status.Metadata.GetName()); err != nil && bounded.Err() == nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != nil {
		c.finish(0)
	}
	return &pb.StopContainerResponse{}, nil
}

func (r *fakeRuntime) RemoveContainer(_ context.Context, q *pb.RemoveContainerRequest) (*pb.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[q.ContainerId]; c != nil {
		c.finish(0)
		delete(r.containers, q.ContainerId)
	}
	return &pb.RemoveContainerResponse{}, nil
}

func (r *fakeRuntime) ListContainers(_ context.Context, q *pb.ListContainersRequest) (*pb.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := q.GetFilter()
	out := &pb.ListContainersResponse{}
	for id, c := range r.containers {
		s := c.status
		if f.GetId() != "" && f.Id != id || f.GetState() != nil && f.State.State != s.State ||
			f.GetPodSandboxId() != "" && f.PodSandboxId != c.sandbox || !matches(s.Labels, f.GetLabelSelector()) {
			continue
		}
		out.Containers = append(out.Containers, &pb.Container{Id: id, PodSandboxId: c.sandbox, Metadata: s.Metadata, Image: s.Image,
			ImageRef: s.ImageRef, ImageId: s.ImageId, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations})
	}
	return out, nil
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, q *pb.ContainerStatusRequest) (*pb.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[q.ContainerId]
	if c == nil {
		return nil, missing("container", q.ContainerId)
	}
	return &pb.ContainerStatusResponse{Status: snapshotContainer(c.status)}, nil
}

func (r *fakeRuntime) UpdateContainerResources(_ context.Context, q *pb.UpdateContainerResourcesRequest) (*pb.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[q.ContainerId]; c != nil && q.Linux != nil {
		c.status.Resources = &pb.ContainerResources{Linux: q.Linux}
	}
	return &pb.UpdateContainerResourcesResponse{}, nil
}

func (r *fakeRuntime) UpdatePodSandboxResources(context.Context, *pb.UpdatePodSandboxResourcesRequest) (*pb.UpdatePodSandboxResourcesResponse, error) {
	return &pb.UpdatePodSandboxResourcesResponse{}, nil
}

func (r *fakeRuntime) ReopenContainerLog(context.Context, *pb.ReopenContainerLogRequest) (*pb.ReopenContainerLogResponse, error) {
	return &pb.ReopenContainerLogResponse{}, nil
}

// ExecSync answers every exec probe with success.
func (r *fakeRuntime) ExecSync(context.Context, *pb.ExecSyncRequest) (*pb.ExecSyncResponse, error) {
	return &pb.ExecSyncResponse{}, nil
}

func (r *fakeRuntime) ListContainerStats(context.Context, *pb.ListContainerStatsRequest) (*pb.ListContainerStatsResponse, error) {
	return &pb.ListContainerStatsResponse{}, nil
}

func (r *fakeRuntime) ListPodSandboxStats(context.Context, *pb.ListPodSandboxStatsRequest) (*pb.ListPodSandboxStatsResponse, error) {
	return &pb.ListPodSandboxStatsResponse{}, nil
}

func (r *fakeRuntime) ListImages(context.Context, *pb.ListImagesRequest) (*pb.ListImagesResponse, error) {
	return &pb.ListImagesResponse{}, nil
}

// ImageStatus says that every image is there.
func (r *fakeRuntime) ImageStatus(_ context.Context, q *pb.ImageStatusRequest) (*pb.ImageStatusResponse, error) {
	return &pb.ImageStatusResponse{Image: &pb.Image{Id: q.Image.Image, RepoTags: []string{q.Image.Image}, Size: 1}}, nil
}

func (r *fakeRuntime) PullImage(ctx context.Context, q *pb.PullImageRequest) (*pb.PullImageResponse, error) {
	pod := q.SandboxConfig.GetAnnotations()
	if err := hold(ctx, pod, "pull-delay", ""); err != nil {
		return nil, err
	}
	if err := refuse(pod, "fail-pull", ""); err != nil {
		return nil, err
	}
	return &pb.PullImageResponse{ImageRef: q.Image.Image}, nil
}

func (r *fakeRuntime) ImageFsInfo(context.Context, *pb.ImageFsInfoRequest) (*pb.ImageFsInfoResponse, error) {
	usage := []*pb.FilesystemUsage{{Timestamp: now(), FsId: &pb.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &pb.UInt64Value{Value: 1}, InodesUsed: &pb.UInt64Value{Value: 1}}}
	return &pb.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}

// Answers are encoded after the lock is released, so a record that may change is copied first.

func snapshotContainer(s *pb.ContainerStatus) *pb.ContainerStatus {
	return &pb.ContainerStatus{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, StartedAt: s.StartedAt,
		FinishedAt: s.FinishedAt, ExitCode: s.ExitCode, Reason: s.Reason, Message: s.Message, Image: s.Image, ImageRef: s.ImageRef, ImageId: s.ImageId,
		Labels: s.Labels, Annotations: s.Annotations, LogPath: s.LogPath, Resources: s.Resources}
}

func snapshotSandbox(s *pb.PodSandboxStatus) *pb.PodSandboxStatus {
	return &pb.PodSandboxStatus{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Network: s.Network,
		Linux: s.Linux, Labels: s.Labels, Annotations: s.Annotations}
}
