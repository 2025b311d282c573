// This module quotes words for a shell's command line.

// quote quotes any text as one word.
export const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

// shellWord quotes a text unless a shell reads it unchanged without quotes. zsh replaces words that begin with =.
export const shellWord = (text: string) => (/^[\w%+,./:@-][\w%+,./:=@-]*$/.test(text) ? text : quote(text));
