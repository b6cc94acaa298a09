//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startCluster starts a Redis Cluster of three masters, each with a replica.
func startCluster(t *testing.T) []*redisServer {
	t.Helper()
	var nodes []*redisServer
	args := []string{"--cluster", "create"}
	for range 6 {
		node := startRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", freePort(t),
			"--repl-diskless-sync-delay", "0")
		nodes = append(nodes, node)
		args = append(args, node.addr)
	}
	out, err := exec.Command("redis-cli", append(args, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, string(out))
	await(t, 20*time.Second, "the cluster is ready and its replicas are in sync", func() bool {
		for _, node := range nodes {
			if replication := node.Info(t.Context(), "replication").Val(); strings.Contains(replication, "role:slave") &&
				!strings.Contains(replication, "master_link_status:up") {
				return false
			}
			if !strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok") ||
				strings.Count(node.ClusterNodes(t.Context()).Val(), "slave ") != 3 {
				return false
			}
		}
		return true
	})
	return nodes
}

// startClusterReplicas starts five replicas that use a cluster, and waits for their first calls.
func startClusterReplicas(t *testing.T, nodes []*redisServer, service *service) []*replica {
	t.Helper()
	replicas := startReplicas(t, 5, config{
		Redis:       nodes[0].addr,
		Cluster:     true,
		Service:     service.URL,
		Rate:        200,
		Burst:       10,
		MinInterval: 100 * time.Millisecond,
	})
	doAll(replicas, "call 2 0s")
	return replicas
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// masterOf returns the master that serves a key: other nodes redirect. It returns nil if there is
// none.
func masterOf(t *testing.T, nodes []*redisServer, key string) *redisServer {
	t.Helper()
	for _, node := range nodes {
		if node.Exists(t.Context(), key).Err() == nil {
			return node
		}
	}
	return nil
}

func TestClusterMasterIsKilled(t *testing.T) {
	skipUnlessAll(t)
	nodes, service := startCluster(t), newService(t)
	replicas := startClusterReplicas(t, nodes, service)
	load := beginAll(replicas, "call 5 12s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // keys rotate
		for ctx.Err() == nil {
			time.Sleep(500 * time.Millisecond)
			service.reject()
		}
	}()
	time.Sleep(time.Second) // calls before the fault
	master := masterOf(t, nodes, redisKey)
	require.NotNil(t, master)
	master.kill()
	killed := time.Now()
	await(t, 20*time.Second, "promotion", func() bool { return masterOf(t, nodes, redisKey) != nil })
	promoted := time.Now()
	time.Sleep(3 * time.Second) // keys still rotate
	cancel()
	sum := load()
	t.Logf("kill -9 of the master of both keys, promoted after %v: the last call failed %v later",
		promoted.Sub(killed).Round(time.Millisecond), sum.LastFailed.Sub(promoted).Round(time.Millisecond))
	assert.Less(t, sum.LastFailed.Sub(promoted), 2*time.Second, sum.Errors)
	assert.Positive(t, sum.OK)
}

func TestPermissionsOfTheREADMESufficeForClusters(t *testing.T) {
	nodes := startCluster(t)
	for _, node := range nodes {
		createUser(t, node)
	}
	client := redis.NewClusterClient(
		&redis.ClusterOptions{
			Addrs:                 []string{nodes[0].addr},
			ContextTimeoutEnabled: true,
			Username:              "msgpush",
			Password:              "password",
		},
	)
	defer client.Close()
	useStore(t, client)
	for _, node := range nodes {
		assert.Empty(t, node.Do(t.Context(), "ACL", "LOG").Val(), "commands that were denied")
	}
}

func TestClusterSlotsAreMoved(t *testing.T) {
	skipUnlessAll(t)
	nodes, service := startCluster(t), newService(t)
	replicas := startClusterReplicas(t, nodes, service)
	load := beginAll(replicas, "call 5 8s")
	for range 4 {
		from := masterOf(t, nodes, redisKey)
		var to *redisServer
		for _, node := range nodes {
			if node != from && strings.Contains(node.Info(t.Context(), "replication").Val(), "role:master") {
				to = node
			}
		}
		slotNumber := from.ClusterKeySlot(t.Context(), redisKey).Val()
		slot := strconv.FormatInt(slotNumber, 10)
		fromID, toID := from.ClusterMyID(t.Context()).Val(), to.ClusterMyID(t.Context()).Val()
		require.NoError(t, to.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err())
		require.NoError(t, from.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
		service.reject() // a fetch while the slot moves
		host, port, _ := net.SplitHostPort(to.addr)
		for _, key := range from.ClusterGetKeysInSlot(t.Context(), int(slotNumber), 100).Val() {
			require.NoError(t, from.Migrate(t.Context(), host, port, key, 0, time.Second).Err())
		}
		for _, node := range []*redisServer{to, from} {
			require.NoError(t, node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
		}
		time.Sleep(time.Second) // calls between two moves
	}
	sum := load()
	t.Logf("the slot is moved 4 times under load: %d of %d calls failed, %d fetches", sum.Failed, sum.OK+sum.Failed,
		service.issues())
	assert.Zero(t, sum.Failed, sum.Errors)
}

func TestSentinelFailover(t *testing.T) {
	skipUnlessAll(t)
	master, service := startRedis(t, "--repl-diskless-sync-delay", "0"), newService(t)
	host, port, _ := net.SplitHostPort(master.addr)
	replica := startRedis(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	await(t, 10*time.Second, "the replica is in sync", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := startSentinel(t, master.addr)
	replicas := startReplicas(t, 10, config{Sentinel: sentinel, Service: service.URL, Rate: 100, Burst: 1, Fallback: 10})
	doAll(replicas, "call 1 0s")
	service.reset()
	load := beginAll(replicas, "call 5 12s")
	time.Sleep(2 * time.Second) // calls before the fault
	master.kill()
	killed := time.Now()
	await(t, 20*time.Second, "promotion", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "role:master")
	})
	promoted := time.Since(killed)
	sum := load()
	arrivals, _ := service.reset()
	t.Logf("Sentinel failover after %v: %d of %d calls failed, worst second %d at 100/s, %d fetches",
		promoted.Round(time.Millisecond), sum.Failed, sum.OK+sum.Failed, worstSecond(arrivals), service.issues())
	assert.Zero(t, sum.Failed, sum.Errors)
	assert.LessOrEqual(t, worstSecond(arrivals), 2*100+1+10)
	assert.Equal(t, 1, service.issues())
}

func startSentinel(t *testing.T, master string) (addr string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master)
	own := freePort(t)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf(
		"bind 127.0.0.1\nport %s\nsentinel monitor master %s %s 1\n"+
			"sentinel down-after-milliseconds master 1000\nsentinel failover-timeout master 3000\n",
		own,
		host,
		port,
	)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	startProcess(t, exec.Command("redis-server", file, "--sentinel"))
	addr = net.JoinHostPort("127.0.0.1", own)
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer client.Close()
	await(t, 15*time.Second, "the sentinel knows the replica", func() bool {
		known, err := client.Replicas(t.Context(), "master").Result()
		return err == nil && len(known) == 1
	})
	return addr
}
