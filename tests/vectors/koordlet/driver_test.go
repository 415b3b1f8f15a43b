// Writes what koordlet reports of the nodes of koordlet_report.jsonl.gz: see ../README.md.
package impl

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"github.com/koordinator-sh/koordinator/apis/extension"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/metriccache"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/statesinformer"
	koordletutil "github.com/koordinator-sh/koordinator/pkg/koordlet/util"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/util/system"
)

type driverCPU struct{ ID, Core, Socket, Node int32 }

type driverPod struct {
	UID, Namespace, Name string
	Labels, Annotations  map[string]string
}

type driverCase struct {
	ID       string
	CPUs     []driverCPU
	Basic    extension.CPUBasicInfo
	Policy   string
	Options  map[string]string
	Reserved string
	State    json.RawMessage
	Node     map[string]string
	Pods     []driverPod
}

type driverCache struct {
	metriccache.MetricCache
	values map[interface{}]interface{}
}

func (c driverCache) Get(key interface{}) (interface{}, bool) {
	value, ok := c.values[key]
	return value, ok
}

// TestDriver reads cases (CASES, JSON lines) and writes what koordlet reports of each (ANSWERS).
func TestDriver(t *testing.T) {
	in, err := os.Open(os.Getenv("CASES"))
	if err != nil {
		t.Skip("no CASES")
	}
	out, _ := os.Create(os.Getenv("ANSWERS"))
	defer out.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c driverCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		os.WriteFile(filepath.Join(folder, "cpu_manager_state"), c.State, 0o600)
		system.Conf.VarLibKubeletRootDir = folder
		info := &metriccache.NodeCPUInfo{BasicInfo: c.Basic}
		info.TotalInfo = koordletutil.CPUTotalInfo{
			NumberCPUs:  int32(len(c.CPUs)),
			CoreToCPU:   map[int32][]koordletutil.ProcessorInfo{},
			NodeToCPU:   map[int32][]koordletutil.ProcessorInfo{},
			SocketToCPU: map[int32][]koordletutil.ProcessorInfo{},
		}
		for _, cpu := range c.CPUs {
			p := koordletutil.ProcessorInfo{CPUID: cpu.ID, CoreID: cpu.Core, SocketID: cpu.Socket, NodeID: cpu.Node}
			info.ProcessorInfos = append(info.ProcessorInfos, p)
			info.TotalInfo.CoreToCPU[cpu.Core] = append(info.TotalInfo.CoreToCPU[cpu.Core], p)
			info.TotalInfo.NodeToCPU[cpu.Node] = append(info.TotalInfo.NodeToCPU[cpu.Node], p)
			info.TotalInfo.SocketToCPU[cpu.Socket] = append(info.TotalInfo.SocketToCPU[cpu.Socket], p)
		}
		numa := &koordletutil.NodeNUMAInfo{}
		for range info.TotalInfo.NodeToCPU {
			numa.NUMAInfos = append(numa.NUMAInfos, koordletutil.NUMAInfo{})
		}
		pods := map[string]*statesinformer.PodMeta{}
		for _, pod := range c.Pods {
			meta := metav1.ObjectMeta{UID: types.UID(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
			pods[pod.UID] = &statesinformer.PodMeta{Pod: &corev1.Pod{ObjectMeta: meta}}
		}
		s := &nodeTopoInformer{
			config:      &Config{},
			metricCache: driverCache{values: map[interface{}]interface{}{metriccache.NodeCPUInfoKey: info, metriccache.NodeNUMAInfoKey: numa}},
			kubelet: &testKubeletStub{config: &kubeletconfiginternal.KubeletConfiguration{
				CPUManagerPolicy: c.Policy, CPUManagerPolicyOptions: c.Options, ReservedSystemCPUs: c.Reserved,
			}},
			nodeInformer: &nodeInformer{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: c.Node}}},
			podsInformer: &podsInformer{podMap: pods},
		}
		answer := map[string]interface{}{"id": c.ID}
		if status, err := s.calcNodeTopo(); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["annotations"] = status.Annotations
		}
		line, _ := json.Marshal(answer)
		out.Write(append(line, '\n'))
	}
}
