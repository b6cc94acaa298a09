package main

import (
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A demo is a fake server whose list of trigger records grows. Delete this file in your copy.
type demo struct {
	fake *msgpushtest.Server
	dir  string // of the access key and the database
	stop chan struct{}
}

// startDemo starts a fake server and sets what c lacks to use it.
func startDemo(c *config, logger *slog.Logger) (*demo, error) {
	dir, err := os.MkdirTemp("", "service")
	if err != nil {
		return nil, err
	}
	d := &demo{fake: msgpushtest.NewServer(), dir: dir, stop: make(chan struct{})}
	d.fake.SetRecords(msgpushtest.SampleRecords())
	c.url = d.fake.URL
	c.keyFile = filepath.Join(dir, "access-key")
	c.rejectedCodes = []int{msgpushtest.CodeAccessKey}
	c.db = cmp.Or(c.db, filepath.Join(dir, "service.db"))
	c.pollInterval = cmp.Or(c.pollInterval, time.Second)
	if err := os.WriteFile(c.keyFile, []byte(d.fake.AccessKey()), 0o600); err != nil {
		d.fake.Close()
		return nil, err
	}
	logger.Info("using a fake server, since there is no -url: a failure follows within ten seconds")
	go d.addRecords()
	return d, nil
}

// addRecords inserts a record every two seconds. Every second one is a failure.
func (d *demo) addRecords() {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	added := d.fake.Records().ForwardLogs[0]
	for n := 0; ; n++ {
		select {
		case <-d.stop:
			return
		case now := <-ticker.C:
			added.ID = now.Unix() // so that a database may be used again
			added.CreateTime = msgpush.DateTime(now.UTC().Format(time.DateTime))
			added.MatchResult, added.MatchResultName, added.ErrorMessage = 1, "已转发", ""
			if n%2 == 1 {
				added.MatchResult, added.MatchResultName = msgpushtest.SampleFailed, "转发失败"
				added.ErrorMessage = "target 1: connection refused"
			}
			d.fake.InsertForwardLog(added)
		}
	}
}

func (d *demo) close() {
	close(d.stop)
	d.fake.Close()
	_ = os.RemoveAll(d.dir)
}
