package dhcp

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// finalWait is how long perfdhcp and renew wait for missing replies at the end.
const finalWait = 500 * time.Millisecond

// extraClients returns how many more clients than requested perfdhcp may start: after a pause it starts all that are
// due.
func extraClients(rate float64) int { return int(rate/10) + 16 }

// perfdhcp runs perfdhcp, which leases addresses for the given number of new clients, or a few more, at a rate per
// second.
func (l *lan) perfdhcp(ctx context.Context, p *measure.Process, rate float64, clients int) (result, error) {
	before, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	cmd := l.Command(ctx, perfdhcp, "-4", "-l", relayAddress, "-b", "mac="+client(0).mac().String(), "-u", "-g", "single",
		"-r", fmt.Sprintf("%.0f", rate), "-R", strconv.Itoa(clients+extraClients(rate)), "-n", strconv.Itoa(clients), "-n", strconv.Itoa(clients),
		"-W", strconv.FormatInt(finalWait.Microseconds(), 10), serverAddress)
	out, err := cmd.CombinedOutput()
	const exitIncomplete = 3 // some exchanges were not completed
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitIncomplete) {
		return result{}, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	after, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	r, err := parse(string(out), rate, clients)
	if err != nil {
		return result{}, fmt.Errorf("%s: %w; output:\n%s", cmd, err, out)
	}
	r.cpu = (after - before) / time.Duration(max(1, r.done))
	return r, nil
}

var (
	rateLine  = regexp.MustCompile(`(?m)^Rate: ([0-9.e+]+) 4-way exchanges/second`)
	statistic = regexp.MustCompile(`(?m)^(sent packets|received packets|non unique addresses|avg delay): ([0-9.e+-]+)`)
)

// parse parses perfdhcp's statistics of a run with the given rate and number of clients.
func parse(out string, rate float64, clients int) (result, error) {
	_, offers, _ := strings.Cut(out, "***Statistics for: DISCOVER-OFFER***")
	offers, acks, ok := strings.Cut(offers, "***Statistics for: REQUEST-ACK***")
	done := rateLine.FindStringSubmatch(out)
	if !ok || done == nil {
		return result{}, errors.New("perfdhcp's statistics are incomplete")
	}
	offer, ack := statistics(offers), statistics(acks)
	r := result{
		offered: rate, started: int(offer["sent packets"]), done: int(ack["received packets"]),
		delay: time.Duration((offer["avg delay"] + ack["avg delay"]) / 2 * float64(time.Millisecond)),
	}
	var err error
	if r.rate, err = strconv.ParseFloat(done[1], 64); err != nil {
		return result{}, fmt.Errorf("parsing perfdhcp's rate: %w", err)
	}
	if r.started == 0 {
		return result{}, errors.New("perfdhcp sent no packets")
	}
	// If perfdhcp started more exchanges than it has clients, some clients leased their address twice.
	if n := int(ack["non unique addresses"]); n > max(0, r.started-clients-extraClients(r.offered)) {
		return result{}, fmt.Errorf("%d addresses were leased twice", n)
	}
	// perfdhcp's time includes finalWait, unless exactly the requested number of exchanges was completed.
	complete := r.started == clients && r.done == clients
	if took := float64(r.done) / r.rate; !complete && r.done > 0 && took > finalWait.Seconds() {
		r.rate = float64(r.done) / (took - finalWait.Seconds())
	}
	return r, nil
}

// statistics returns the statistics of one kind of exchange by name.
func statistics(text string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range statistic.FindAllStringSubmatch(text, -1) {
		if value, err := strconv.ParseFloat(m[2], 64); err == nil {
			values[m[1]] = value
		}
	}
	return values
}
