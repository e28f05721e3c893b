package vip

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

// pass lets time pass at a replica: it probes at each interval, and receives frames with the floating address from hosts, and one
// of another host.
func pass(m *stateMachine, hosts answers, from time.Time, d time.Duration, claims ...mac) time.Time {
	for end := from.Add(d); from.Before(end); from = from.Add(probeInterval) {
		m.setProbed(time.Time{})
		m.handleFrame(from, parsedFrame{Sender: mac{2, 0, 0, 0, 7, 7}})
		for _, claim := range claims {
			f := parsedFrame{Sender: claim, Address: test4}
			hosts.record(from, f)
			m.handleFrame(from, f)
		}
	}
	return from
}

func TestProblemsOfTheAddress(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(hosts answers) (*stateMachine, time.Time)
		want []string // code and a part of the message
	}{
		{"a peer has the address", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			return m, pass(m, hosts, start, 5*time.Minute, lowerMAC)
		}, nil},
		{"this replica has it", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			return m, pass(m, hosts, now, 5*time.Minute)
		}, nil},
		{"it moves back and forth", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			now := pass(m, hosts, start, 20*time.Second, lowerMAC)
			now = pass(m, hosts, now, 20*time.Second, higherMAC)
			return m, pass(m, hosts, now, 2*time.Second, lowerMAC)
		}, nil},
		{"it moves here", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			now := pass(m, hosts, start, time.Minute, lowerMAC)
			m.claim(now, "test")
			return m, pass(m, hosts, now, 16*time.Second)
		}, nil},
		{"no replica answers, and the Lease has expired", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			m.setReady(start, false)
			return m, pass(m, hosts, start, 61*time.Second)
		}, []string{"AddressNotHeld no proxy replica has the floating address"}},
		{"no replica answers yet", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			return m, pass(m, hosts, start, 59*time.Second)
		}, nil},
		{"the holder of the Lease renews it", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			now := pass(m, hosts, start, 2*time.Minute)
			r := m.lease
			r.renewed = "2"
			m.setLease(now, time.Time{}, r)
			return m, now
		}, nil},
		{"no host answers at all", func(answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			for range 240 {
				m.setProbed(time.Time{})
			}
			return m, start.Add(2 * time.Minute)
		}, nil},
		{"this process did not run", func(answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			now := start.Add(2 * time.Minute)
			m.setProbed(time.Time{})
			m.handleFrame(now, parsedFrame{Sender: lowerMAC})
			return m, now
		}, nil},
		{"its proxy is not ready", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			m.setReady(now, false)
			return m, pass(m, hosts, now, time.Minute)
		}, []string{"AddressNotHeld the pod has the floating address 192.0.2.4, 2001:db8::4, but its proxy is not ready"}},
		{"it terminates", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			m.setReady(now, false)
			m.terminating = true
			return m, pass(m, hosts, now, 2*time.Minute)
		}, nil},
		{"a stranger answers", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			return m, pass(m, hosts, now, 16*time.Second, tenantMAC)
		}, []string{"AddressHeldTwice 2 hosts have the floating address"}},
		{"a stranger answers a standby replica", func(hosts answers) (*stateMachine, time.Time) {
			m := standbyMachine()
			return m, pass(m, hosts, start, 16*time.Second, lowerMAC, tenantMAC)
		}, []string{"AddressHeldTwice 2 hosts have the floating address"}},
		{"a stranger has claimed it", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			now = pass(m, hosts, now, 10*time.Second, tenantMAC)
			return m, pass(m, hosts, now, 16*time.Second)
		}, nil},
		{"it moves repeatedly", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			for range 3 {
				m.drop(now, "test")
				m.claim(now.Add(time.Minute), "test")
				now = now.Add(2 * time.Minute)
			}
			return m, pass(m, hosts, now, time.Minute)
		}, []string{"AddressUnstable the pod got or lost the floating address 6 times within 5m0s"}},
		{"it moved repeatedly", func(hosts answers) (*stateMachine, time.Time) {
			m, now := holderMachine(true)
			for range 3 {
				m.drop(now, "test")
				m.claim(now.Add(time.Minute), "test")
			}
			return m, pass(m, hosts, now.Add(time.Minute), 11*time.Minute)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hosts := newAnswers(standbyMachine().addresses)
			m, now := tc.run(hosts)
			var got []string
			for _, p := range m.problems(now, hosts) {
				got = append(got, string(p.Code)+" "+p.Message)
			}
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEvidenceOfASharedAddress(t *testing.T) {
	m, now := holderMachine(true)
	hosts := newAnswers(m.addresses)
	now = pass(m, hosts, now, 16*time.Second, tenantMAC)
	list := m.problems(now, hosts)
	if len(list) != 1 || list[0].Remedy != "" || !slices.Equal(list[0].Evidence, []string{
		"MAC address 02:00:00:00:09:09 answers: not a proxy replica", "this pod has the address, with MAC address " + testMAC.String(),
	}) {
		t.Errorf("%+v", list)
	}
}

func TestProblemOfTheLease(t *testing.T) {
	failed := errors.New("forbidden")
	var writes failureSeries
	now := start
	for range 20 {
		writes.add(now, failed)
		now = now.Add(time.Second)
	}
	if list := writes.problems(now); len(list) != 0 {
		t.Errorf("after 20 s: %+v", list)
	}
	for range 11 {
		writes.add(now, failed)
		now = now.Add(time.Second)
	}
	if list := writes.problems(now); len(list) != 1 || list[0].Code != problem.LeaseNotRenewable || !list[0].Since.Equal(start) || !slices.Equal(list[0].Evidence, []string{"forbidden"}) {
		t.Errorf("after 30 s: %+v", list)
	}
	if list := writes.problems(now.Add(maxRetry)); len(list) != 0 {
		t.Errorf("without another attempt: %+v", list)
	}
	writes.add(now, nil)
	if list := writes.problems(now); len(list) != 0 {
		t.Errorf("after a success: %+v", list)
	}
}
