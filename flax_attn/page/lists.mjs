// Lists of numbers, for the engine and for the pictures.

/** The whole numbers from 0 below `end`. */
export const range = (end) => Array.from({ length: end }, (_, i) => i);

export const sumOf = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

/** The mean of numbers; NaN where there is none. */
export const meanOf = (numbers) => sumOf(numbers) / numbers.length;

/** The index of the first of the largest numbers, among those that are not NaN. */
export function indexOfLargest(numbers) {
  let best = 0;
  for (let i = 1; i < numbers.length; i++)
    if (numbers[i] > numbers[best] || Number.isNaN(numbers[best])) best = i;
  return best;
}

/** The bytes that a text in base64 stands for. */
export const bytesFrom64 = (base64) =>
  Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
