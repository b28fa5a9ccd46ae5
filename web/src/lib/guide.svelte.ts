/** Which part of the picture the lesson speaks of, and which parts hold the answer of its question. */
export const guide = $state({ lit: "", veiled: [] as string[] });
