"""What a page is asked in a real browser."""

LEAST_CONTRAST = 4.5  # WCAG 2.2 AA, text of normal size
# Contrast of each text's colour with the nearest background that is painted behind it.
CONTRASTS = """
(() => {
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const luminance = color => {
    paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (color !== 'rgba(0, 0, 0, 0)') return color;
    }
    return 'white';
  };
  const found = [];
  for (const e of document.querySelectorAll('body, body *')) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e), svg = e.namespaceURI.endsWith('svg');
    if (svg && e.localName !== 'text') continue;
    const [a, b] = [luminance(svg ? style.fill : style.color), luminance(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.textContent.trim().slice(0, 40)]);
  }
  return found;
})()
"""
