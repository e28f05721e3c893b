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

// straggling is for how long perfdhcp waits for the last answers, where some are missing.
const straggling = 500 * time.Millisecond

// spare is how many clients more perfdhcp may begin with than it is told: after a pause it
// sends all that are due.
func spare(rate float64) int { return int(rate/10) + 16 }

// perfdhcp has as many clients that a server has not seen before ask for an address each, or
// a few more.
func (l *lan) perfdhcp(ctx context.Context, p *measure.Process, rate float64, clients int) (result, error) {
	before, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	cmd := l.Command(ctx, perfdhcp, "-4", "-l", relayAddress, "-b", "mac="+client(0).mac().String(), "-u", "-g", "single",
		"-r", fmt.Sprintf("%.0f", rate), "-R", strconv.Itoa(clients+spare(rate)), "-n", strconv.Itoa(clients), "-n", strconv.Itoa(clients),
		"-W", strconv.FormatInt(straggling.Microseconds(), 10), serverAddress)
	out, err := cmd.CombinedOutput()
	const someUnanswered = 3
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != someUnanswered) {
		return result{}, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	after, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	r, err := parse(string(out), rate, clients)
	if err != nil {
		return result{}, fmt.Errorf("%s: %w; it said:\n%s", cmd, err, out)
	}
	r.cpu = (after - before) / time.Duration(max(1, r.done))
	return r, nil
}

var (
	rateLine  = regexp.MustCompile(`(?m)^Rate: ([0-9.e+]+) 4-way exchanges/second`)
	statistic = regexp.MustCompile(`(?m)^(sent packets|received packets|non unique addresses|avg delay): ([0-9.e+-]+)`)
)

// parse reads what perfdhcp prints of so many clients.
func parse(out string, rate float64, clients int) (result, error) {
	_, offers, _ := strings.Cut(out, "***Statistics for: DISCOVER-OFFER***")
	offers, acks, ok := strings.Cut(offers, "***Statistics for: REQUEST-ACK***")
	done := rateLine.FindStringSubmatch(out)
	if !ok || done == nil {
		return result{}, errors.New("reading perfdhcp's statistics: not all are there")
	}
	offer, ack := statistics(offers), statistics(acks)
	r := result{
		offered: rate, asked: int(offer["sent packets"]), done: int(ack["received packets"]),
		delay: time.Duration((offer["avg delay"] + ack["avg delay"]) / 2 * float64(time.Millisecond)),
	}
	var err error
	if r.rate, err = strconv.ParseFloat(done[1], 64); err != nil {
		return result{}, fmt.Errorf("reading perfdhcp's rate: %w", err)
	}
	if r.asked == 0 {
		return result{}, errors.New("perfdhcp asked for nothing")
	}
	// Who began twice after all has the same address twice.
	if n := int(ack["non unique addresses"]); n > max(0, r.asked-clients-spare(r.offered)) {
		return result{}, fmt.Errorf("%d addresses were given twice", n)
	}
	// Its time has the wait for the last answers in it, unless there were as many as were
	// to be expected.
	asExpected := r.asked == clients && r.done == clients
	if took := float64(r.done) / r.rate; !asExpected && r.done > 0 && took > straggling.Seconds() {
		r.rate = float64(r.done) / (took - straggling.Seconds())
	}
	return r, nil
}

func statistics(text string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range statistic.FindAllStringSubmatch(text, -1) {
		if value, err := strconv.ParseFloat(m[2], 64); err == nil {
			values[m[1]] = value
		}
	}
	return values
}
