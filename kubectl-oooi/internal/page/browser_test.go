package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/browser"
)

// TestPageInABrowser opens pages in light and dark colours, in windows of a desktop, a tablet and a telephone.
func TestPageInABrowser(t *testing.T) {
	hundred := []*Site{diagnosed(), site(200, ""), site(3, "dns-pod-tcp"), site(0, "none"), {}}
	for len(hundred) < 100 {
		hundred = append(hundred, site(1, "none"))
	}
	for name, sites := range map[string][]*Site{"healthy": {site(12, "")}, "broken": {site(1, "tls-oauth")}, "diagnosed": {diagnosed()}, "hundred": hundred} {
		for _, colours := range []string{"light", "dark"} {
			t.Run(name+"-"+colours, func(t *testing.T) {
				p := browser.Open(t, pageOf(t, sites...), 1280, map[string]string{"prefers-color-scheme": colours})
				p.Layout(t)
				background := browser.Value[string](t, p, `getComputedStyle(document.body).backgroundColor`)
				if dark := background != "rgb(255, 255, 255)"; dark != (colours == "dark") {
					t.Errorf("the background is %s", background)
				}
				for _, width := range []int{1000, 800, 400} {
					p.Resize(t, width)
					t.Run(fmt.Sprint(width), p.Layout)
				}
				if len(p.Problems) > 0 || len(p.Requests) != 1 {
					t.Errorf("the browser reports %q and loaded %q", p.Problems, p.Requests)
				}
			})
		}
	}
}

// TestPageOnPaper expects the content of all elements on paper, also of those that are closed on the screen, and the drawing.
func TestPageOnPaper(t *testing.T) {
	p := browser.Open(t, pageOf(t, site(3, "")), 700, nil)
	const objects, drawing = `document.querySelector('.elements li li').checkVisibility()`, `document.querySelector('svg').checkVisibility()`
	if browser.Value[bool](t, p, objects) || browser.Value[bool](t, p, drawing) {
		t.Error("an element is open, or the drawing visible, on a narrow screen")
	}
	p.Do(t, "Emulation.setEmulatedMedia", map[string]any{"media": "print"})
	if !browser.Value[bool](t, p, objects) || !browser.Value[bool](t, p, drawing) {
		t.Error("the objects of an element, or the drawing, are not on paper")
	}
}

// TestPageWithAKeyboard opens an element of the drawing with the keyboard.
func TestPageWithAKeyboard(t *testing.T) {
	p := browser.Open(t, pageOf(t, site(3, "")), 1280, nil)
	for range 20 {
		p.Press(t, "Tab", 9, "")
		if strings.HasSuffix(browser.Value[string](t, p, `document.activeElement.getAttribute('href') || ''`), "-dns") {
			break
		}
	}
	const open = `document.getElementById('site-0-dns').closest('details').open`
	if browser.Value[bool](t, p, open) {
		t.Error("the element is open from the start")
	}
	p.Press(t, "Enter", 13, "\r")
	if !browser.Value[bool](t, p, open) || !strings.Contains(browser.Value[string](t, p, `document.querySelector(':target').innerText`), "demo-dns-0") {
		t.Errorf("Enter on the DNS server leads to %s, not to its pods", browser.Value[string](t, p, `location.hash`))
	}
}
