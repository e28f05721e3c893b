(() => {
  const problems = [];
  const closed = [...document.querySelectorAll('details:not([open])')];
  closed.forEach(e => e.open = true);
  const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  for (const drawing of [...document.querySelectorAll('svg')].filter(e => e.checkVisibility())) {
    const at = drawing.getBoundingClientRect(), boxes = [...drawing.querySelectorAll('rect')].map(e => e.getBoundingClientRect());
    for (const [i, box] of boxes.entries())
      if (!inside(box, at) || boxes.slice(i + 1).some(other => !apart(box, other)))
        problems.push('box ' + i + ' is outside of the drawing or on another');
    for (const box of drawing.querySelectorAll('a'))
      for (const text of box.querySelectorAll('text')) {
        const place = text.getBoundingClientRect();
        if (!inside(place, box.querySelector('rect').getBoundingClientRect())) problems.push('text outside of its box: ' + text.textContent);
        if (place.height < 10) problems.push('text ' + place.height + ' px high: ' + text.textContent);
      }
    const labels = [...drawing.querySelectorAll('.label')];
    labels.forEach((label, i) => {
      const at = label.getBoundingClientRect();
      if (boxes.some(box => !apart(at, box))) problems.push('label on a box: ' + label.textContent);
      if (labels.slice(i + 1).some(other => !apart(at, other.getBoundingClientRect()))) problems.push('label on another: ' + label.textContent);
    });
  }
  const luminance = colour => {
    const part = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const contrast = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const back = getComputedStyle(document.body).backgroundColor;
  for (const e of document.querySelectorAll('h1, h2, h3, p, a, td, th, li, summary, span, code, strong, svg text')) {
    const svg = e.closest('svg'), style = getComputedStyle(e);
    if (svg && e.tagName == 'a') continue;
    const behind = svg && !e.classList.contains('label') ? getComputedStyle(e.closest('a').querySelector('rect')).fill : back;
    const ratio = contrast(svg ? style.fill : style.color, behind);
    if (ratio < 4.5) problems.push('contrast ' + ratio.toFixed(1) + ': ' + e.textContent);
    const width = e.getBoundingClientRect().width, words = Math.max(...e.textContent.split(/\s/).map(word => word.length));
    if (!svg && width > 0 && width < 80 && words * 7 > width) problems.push('words are broken in ' + width + ' px: ' + e.textContent);
  }
  if (document.documentElement.scrollWidth > window.innerWidth) problems.push('the page is ' + document.documentElement.scrollWidth + ' wide');
  closed.forEach(e => e.open = false);
  return problems;
})()
