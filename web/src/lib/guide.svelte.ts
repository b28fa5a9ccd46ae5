/** Which part of the picture the lesson speaks of. */
export const guide = $state({ lit: "" });
