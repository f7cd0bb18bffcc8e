// A drawn digit as MNIST has digits: its box scaled to 20 x 20 pixels, its centre of mass in the
// middle of 28 x 28.

export const SIZE = 28;
const BOX_SIZE = 20;

/** Ink `(SIZE, SIZE)` from a drawing of any square size; null where nothing is drawn. */
export function centred(ink, size) {
  const box = boxOf(ink, size);
  if (box === null) return null;
  const scale = BOX_SIZE / Math.max(box.right - box.left + 1, box.bottom - box.top + 1);
  const width = (box.right - box.left + 1) * scale;
  const height = (box.bottom - box.top + 1) * scale;
  const first = [(SIZE - width) / 2, (SIZE - height) / 2];
  const draft = sampled(ink, size, box, scale, first);
  const [x, y] = centreOf(draft);
  const middle = (SIZE - 1) / 2;
  const moved = [first[0] + Math.round(middle - x), first[1] + Math.round(middle - y)];
  return sampled(ink, size, box, scale, moved);
}

/** The box around the ink. */
function boxOf(ink, size) {
  let [left, right, top, bottom] = [size, -1, size, -1];
  for (let y = 0; y < size; y++)
    for (let x = 0; x < size; x++) {
      if (ink[y * size + x] < 0.1) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    }
  return right < 0 ? null : { left, right, top, bottom };
}

/** The mean ink of the drawing under each pixel. `first` is where its box begins. */
function sampled(ink, size, box, scale, first) {
  const out = new Float32Array(SIZE * SIZE);
  const counts = new Float32Array(SIZE * SIZE);
  const fine = Math.max(
    1,
    Math.ceil(3 / (BOX_SIZE / Math.max(1, (box.right - box.left + 1) * scale))),
  );
  const step = 1 / Math.max(2, fine);
  for (let v = step / 2; v < SIZE; v += step)
    for (let u = step / 2; u < SIZE; u += step) {
      const x = Math.floor(box.left + (u - first[0]) / scale);
      const y = Math.floor(box.top + (v - first[1]) / scale);
      const cell = Math.floor(v) * SIZE + Math.floor(u);
      counts[cell] += 1;
      if (x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
      out[cell] += x >= 0 && y >= 0 && x < size && y < size ? ink[y * size + x] : 0;
    }
  return out.map((sum, i) => sum / counts[i]);
}

/** The centre of mass `(x, y)` in pixels. */
function centreOf(ink) {
  let [mass, x, y] = [0, 0, 0];
  ink.forEach((own, i) => {
    mass += own;
    x += own * (i % SIZE);
    y += own * Math.floor(i / SIZE);
  });
  const middle = (SIZE - 1) / 2;
  return mass > 0 ? [x / mass, y / mass] : [middle, middle];
}
